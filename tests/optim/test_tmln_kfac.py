"""TMLN on Kronecker factors: against a dense metric, against TMLN itself, and the promises of an optimizer."""

from __future__ import annotations

import copy
import doctest
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tmln.curvature.kfac_factors
import tmln.optim.tmln_kfac
from tmln.curvature import diagonal_fisher
from tmln.curvature.kfac_factors import Factors, mean_factors
from tmln.optim import OCAR, TMLN, TMLNKFAC

DOUBLE = torch.float64


def linear_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3, bias=False)).double()


def normed_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))


def batch(step: int, shape: tuple[int, ...] = (3,), dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(step)
    y = torch.randint(3, (12,), generator=source)
    return torch.randn(12, *shape, generator=source, dtype=dtype) + y.view(-1, *[1] * len(shape)), y


IMAGE = ((1, 5, 5), torch.float32)
MEMORY = [batch(100), batch(101)]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range, *form: Any) -> None:
    for step in steps:
        x, y = batch(step, *form)
        if isinstance(optimizer, (OCAR, TMLNKFAC)):
            optimizer.observe(x, y, replay=4)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def boundary(model: nn.Module, optimizer: TMLNKFAC, batches: list[tuple[Tensor, Tensor]]) -> None:
    optimizer.consolidate(diagonal_fisher(model, batches), batches if optimizer.factors == "boundary" else None)


def weights(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def dense_inverse(model: nn.Module, layer: str, damping: float, labels: str = "exact") -> Tensor:
    """(G + sqrt(lambda)/pi) (x) (A + pi sqrt(lambda)), inverted whole, for [W|b] read row by row."""
    A, G = mean_factors(model, [(torch.cat([x for x, _ in MEMORY]), torch.cat([y for _, y in MEMORY]))], fisher=labels)[
        layer
    ]
    pi = math.sqrt((A.trace() / len(A)) / (G.trace() / len(G)))
    damped_a = A + pi * math.sqrt(damping) * torch.eye(len(A), dtype=DOUBLE)
    damped_g = G + math.sqrt(damping) / pi * torch.eye(len(G), dtype=DOUBLE)
    inverse: Tensor = torch.linalg.inv(torch.kron(damped_g, damped_a))
    return inverse


def through(inverse: Tensor, gradients: list[Tensor]) -> list[Tensor]:
    matrix = torch.cat([gradients[0], *(g[:, None] for g in gradients[1:])], 1)
    moved = (inverse @ matrix.flatten()).view(matrix.shape)
    columns = gradients[0].shape[1]
    return [moved[:, :columns], *(moved[:, k] for k in range(columns, matrix.shape[1]))]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.5, "weight_decay": 0.1}, {"clip_norm": 0.05}])
def test_a_linear_network_against_a_dense_metric(options: dict[str, Any], symmetric: bool) -> None:
    model, lr, damping, trajectory = linear_network(), 0.05, 0.2, 3.0
    optimizer = TMLNKFAC(model, lr, damping, trajectory, labels="exact", symmetric=symmetric, **options)
    train(model, optimizer, range(5))
    boundary(model, optimizer, MEMORY)
    inverses = [dense_inverse(model, "0", damping), dense_inverse(model, "1", damping)]
    shield = [1 + trajectory * optimizer.state[p]["sensitivity"] / damping for p in model.parameters()]
    assert max(float(s.max()) for s in shield) == pytest.approx(1 + trajectory / damping)
    parameters, expected = list(model.parameters()), weights(model)
    paths = [torch.zeros_like(p) for p in parameters]
    velocities = [torch.zeros_like(p) for p in parameters]
    for step in range(5, 9):
        before = weights(model)
        train(model, optimizer, range(step, step + 1))
        task = [p.grad for p in parameters if p.grad is not None]
        scale = 1.0
        if "clip_norm" in options:
            scale = min(1.0, 0.05 / (float(torch.cat([g.flatten() for g in task]).norm()) + 1e-6))
            assert scale < 1
        decay = options.get("weight_decay", 0.0)
        velocities = [
            options.get("momentum", 0.0) * v + scale * g + decay * p
            for v, g, p in zip(velocities, task, before, strict=True)
        ]
        before_factors = [v / s.sqrt() if symmetric else v for v, s in zip(velocities, shield, strict=True)]
        towards = [*through(inverses[0], before_factors[:2]), *through(inverses[1], before_factors[2:])]
        moves = [-lr * d / (s.sqrt() if symmetric else s) for d, s in zip(towards, shield, strict=True)]
        expected = [p + move for p, move in zip(before, moves, strict=True)]
        paths = [path - g * move for path, g, move in zip(paths, task, moves, strict=True)]
        for p, value in zip(parameters, expected, strict=True):
            torch.testing.assert_close(p.detach(), value, rtol=1e-10, atol=1e-12)
    for p, path in zip(parameters, paths, strict=True):
        torch.testing.assert_close(optimizer.path(p), path, rtol=1e-9, atol=1e-12)


def shielded(
    sensitivity: Tensor, inverse_input: Tensor, inverse_output: Tensor, symmetric: bool
) -> Callable[[Tensor], Tensor]:
    """g -> P g of one layer without bias under the given S-bar and inverses; eta = lambda = gamma = 1."""
    layer = nn.Linear(sensitivity.shape[1], sensitivity.shape[0], bias=False, dtype=DOUBLE)
    optimizer = TMLNKFAC(layer, 1.0, 1.0, 1.0, symmetric=symmetric)

    def direction(g: Tensor) -> Tensor:
        before = layer.weight.detach().clone()
        layer.weight.grad = g.clone()
        optimizer.step()
        return before - layer.weight.detach()

    direction(torch.zeros_like(sensitivity))  # makes the state
    optimizer.state[layer.weight]["sensitivity"] = sensitivity
    optimizer.kfac.inverses = {"": Factors(inverse_input, inverse_output)}
    optimizer.kfac.inverse_damping = 1.0
    return direction


def random_shield(seed: int, rows: int = 2, columns: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """S-bar and two positive definite inverses."""
    source = torch.Generator().manual_seed(seed)
    a, g = (torch.randn(n, n, generator=source, dtype=DOUBLE) for n in (columns, rows))
    sensitivity = 10 ** torch.empty(rows, columns, dtype=DOUBLE).uniform_(-1, 3, generator=source)
    return (
        sensitivity,
        a @ a.t() + 0.01 * torch.eye(columns, dtype=DOUBLE),
        g @ g.t() + 0.01 * torch.eye(rows, dtype=DOUBLE),
    )


def test_an_uphill_step_by_hand() -> None:
    """K^-1 = 2*[[0.5, -0.25], [-0.25, 0.5]], D = (1, 100), g = (1, 3)."""
    inverse = torch.tensor([[0.5, -0.25], [-0.25, 0.5]], dtype=DOUBLE), torch.tensor([[2.0]], dtype=DOUBLE)
    sensitivity, g = torch.tensor([[0.0, 99.0]], dtype=DOUBLE), torch.tensor([[1.0, 3.0]], dtype=DOUBLE)
    left = shielded(sensitivity, *inverse, symmetric=False)(g)
    torch.testing.assert_close(left, torch.tensor([[-0.5, 0.025]], dtype=DOUBLE))
    assert float((g * left).sum()) == pytest.approx(-0.425)  # the loss rises
    both = shielded(sensitivity, *inverse, symmetric=True)(g)
    torch.testing.assert_close(both, torch.tensor([[0.85, -0.02]], dtype=DOUBLE))
    assert float((g * both).sum()) == pytest.approx(0.79)


def test_the_symmetric_shield_always_descends_and_the_other_does_not() -> None:
    source, uphill = torch.Generator().manual_seed(0), {False: 0, True: 0}
    for seed in range(400):
        case, g = random_shield(seed), torch.randn(2, 3, generator=source, dtype=DOUBLE)
        for symmetric in uphill:
            uphill[symmetric] += float((g * shielded(*case, symmetric=symmetric)(g)).sum()) <= 0
    assert uphill[True] == 0
    assert uphill[False] > 20


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_preconditioner_is_symmetric_where_it_says_so(symmetric: bool) -> None:
    for seed in range(5):
        direction = shielded(*random_shield(seed), symmetric=symmetric)
        columns = [direction(unit.view(2, 3)).flatten() for unit in torch.eye(6, dtype=DOUBLE)]
        matrix = torch.stack(columns, 1)
        assert torch.allclose(matrix, matrix.t(), rtol=1e-9, atol=1e-12) is symmetric


def test_both_shields_are_one_where_all_weights_are_shielded_alike() -> None:
    _, a, g = random_shield(0)
    gradient = torch.randn(2, 3, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    alike = torch.full((2, 3), 7.0, dtype=DOUBLE)
    left, both = (shielded(alike, a, g, symmetric)(gradient) for symmetric in (False, True))
    torch.testing.assert_close(both, left, rtol=1e-12, atol=0)
    torch.testing.assert_close(both, g @ gradient @ a / 8, rtol=1e-12, atol=0)


def test_the_first_task_is_the_diagonals_to_the_bit() -> None:
    ours, theirs = normed_network(), normed_network()
    factored, diagonal = TMLNKFAC(ours), TMLN(theirs.parameters())
    for model, optimizer in ((ours, factored), (theirs, diagonal)):
        train(model, optimizer, range(4), *IMAGE)
    assert all(torch.equal(a, b) for a, b in zip(weights(ours), weights(theirs), strict=True))


def test_layers_without_factors_go_by_the_diagonal() -> None:
    """All of one step: batch norm as TMLN moves it, the others not."""
    ours, theirs = normed_network(), normed_network()
    factored, diagonal = TMLNKFAC(ours), TMLN(theirs.parameters())
    memory = [batch(50, *IMAGE)]
    for model, optimizer in ((ours, factored), (theirs, diagonal)):
        train(model, optimizer, range(3), *IMAGE)
    boundary(ours, factored, memory)
    diagonal.consolidate(diagonal_fisher(theirs, memory))
    for model, optimizer in ((ours, factored), (theirs, diagonal)):
        train(model, optimizer, range(3, 4), *IMAGE)
    same = [torch.equal(a, b) for a, b in zip(weights(ours), weights(theirs), strict=True)]
    assert same == [False, False, True, True, False, False]


def test_without_a_shield_running_factors_are_ocars() -> None:
    """gamma = 0: where there are factors, the step is OCAR's."""
    ours, theirs = linear_network(), linear_network()
    factored = TMLNKFAC(ours, 0.02, 0.3, 0.0, factors="running", ema=0.5, update_every=2, seed=3)
    other = OCAR(theirs, 0.02, 0.3, ema=0.5, update_every=2, seed=3)
    for model, optimizer in ((ours, factored), (theirs, other)):
        train(model, optimizer, range(5))
    for a, b in zip(weights(ours), weights(theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
    before = factored.kfac.factors
    factored.consolidate(diagonal_fisher(ours, MEMORY))
    assert factored.kfac.factors is before  # they run on


def test_a_change_of_lambda_is_felt_at_once_and_keeps_the_path() -> None:
    model = linear_network()
    optimizer = TMLNKFAC(model, 0.05, 0.2, labels="exact")
    train(model, optimizer, range(3))
    boundary(model, optimizer, MEMORY)
    inverses = {damping: dense_inverse(model, "1", damping) for damping in (0.2, 0.7)}
    (*_, head), path = model.parameters(), torch.zeros(3, 4, dtype=DOUBLE)
    for step, damping in ((3, 0.2), (4, 0.7)):
        optimizer.param_groups[0]["damping"] = damping
        before = head.detach().clone()
        train(model, optimizer, range(step, step + 1))
        assert head.grad is not None
        (towards,) = through(inverses[damping], [head.grad])
        move = -0.05 * towards / (1 + optimizer.state[head]["sensitivity"] / damping)
        torch.testing.assert_close(head.detach() - before, move, rtol=1e-9, atol=1e-12)
        path -= head.grad * move
    torch.testing.assert_close(optimizer.path(head), path, rtol=1e-9, atol=1e-12)


def test_a_bias_that_is_frozen_later_leaves_its_weight_to_the_diagonal() -> None:
    model = linear_network()
    optimizer = TMLNKFAC(model, 0.05, 0.2)
    train(model, optimizer, range(3))
    boundary(model, optimizer, MEMORY)
    train(model, optimizer, range(3, 5))
    weight, bias, _ = model.parameters()
    path = optimizer.path(weight)
    bias.requires_grad_(False)
    before = weight.detach().clone()
    train(model, optimizer, range(5, 6))
    state = optimizer.state[weight]
    assert weight.grad is not None
    move = -0.05 * weight.grad / (state["fisher"] + 0.2 + state["sensitivity"])
    torch.testing.assert_close(weight.detach() - before, move, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(optimizer.path(weight), path - weight.grad * move, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("factors", ["boundary", "running"])
def test_a_loaded_state_goes_on_to_the_bit(factors: Any) -> None:
    first = normed_network()
    made = TMLNKFAC(first, factors=factors, update_every=3)
    memory = [batch(50, *IMAGE)]
    train(first, made, range(4), *IMAGE)
    boundary(first, made, memory)
    train(first, made, range(4, 6), *IMAGE)
    second = copy.deepcopy(first)
    other = TMLNKFAC(second, factors=factors, update_every=3, seed=9)
    other.load_state_dict(copy.deepcopy(made.state_dict()))
    third, copied = copy.deepcopy((first, made))
    for model, optimizer in ((first, made), (second, other), (third, copied)):
        train(model, optimizer, range(6, 12), *IMAGE)
        boundary(model, optimizer, memory)
        train(model, optimizer, range(12, 15), *IMAGE)
    assert all(torch.equal(a, b) for a, b in zip(weights(first), weights(second), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(weights(first), weights(third), strict=True))


def test_a_boundary_that_fails_changes_nothing() -> None:
    model = linear_network()
    optimizer = TMLNKFAC(model)
    train(model, optimizer, range(2))
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError, match="no samples"):
        optimizer.consolidate(diagonal_fisher(model, MEMORY), [])
    with pytest.raises(KeyError, match="has no entry"):
        optimizer.consolidate({next(model.parameters()): torch.ones(4, 3)}, MEMORY)
    after = optimizer.state_dict()
    assert after["curvature"]["factors"] == before["curvature"]["factors"] == {}
    assert torch.equal(after["curvature"]["generator"], before["curvature"]["generator"])
    assert all(torch.equal(after["state"][k]["raw_path"], before["state"][k]["raw_path"]) for k in before["state"])


def test_factors_of_a_memory_are_those_of_all_its_samples_in_eval_mode() -> None:
    model = normed_network()
    x, y = batch(0, *IMAGE)
    pieces = mean_factors(model, [(x[:5], y[:5]), (x[5:], y[5:])], fisher="exact")
    model.eval()
    whole = tmln.curvature.kfac_factors.kfac_factors(model, x, fisher="exact")
    for name in whole:
        for a, b in zip(pieces[name], whole[name], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_boundary_leaves_the_model_alone() -> None:
    model = normed_network()
    optimizer = TMLNKFAC(model)
    train(model, optimizer, range(2), *IMAGE)
    model[0].eval()  # a mixed state of flags
    flags, random = [m.training for m in model.modules()], torch.get_rng_state()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    before = [t.clone() for t in (*model.state_dict().values(), *gradients)]
    boundary(model, optimizer, [batch(50, *IMAGE)])
    after = [*model.state_dict().values(), *(p.grad for p in model.parameters() if p.grad is not None)]
    assert len(before) == 9 + 6
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert [m.training for m in model.modules()] == flags
    assert torch.equal(torch.get_rng_state(), random)


def test_half_precision_is_counted_by_what_rounding_left() -> None:
    model = normed_network().bfloat16()
    optimizer = TMLNKFAC(model)
    form = ((1, 5, 5), torch.bfloat16)
    train(model, optimizer, range(3), *form)
    boundary(model, optimizer, [batch(50, *form)])
    *_, head, _ = model.parameters()
    before = head.detach().float()
    train(model, optimizer, range(3, 4), *form)
    assert head.grad is not None
    moved = head.detach().float() - before
    assert moved.abs().max() > 0
    torch.testing.assert_close(optimizer.path(head), -head.grad.float() * moved)


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda m: TMLN(m.parameters(), geometry="kfac"), ValueError, r"TMLNKFAC\(model"),
        (lambda m: TMLNKFAC(m.parameters()), TypeError, "needs the model itself"),
        (lambda m: TMLNKFAC(m, form="proximal"), TypeError, "takes no form"),
        (lambda m: TMLNKFAC(m, geometry="fisher"), TypeError, "takes no geometry"),
        (lambda m: TMLNKFAC(m, factors="batch"), ValueError, "factors must be one of boundary"),  # type: ignore[arg-type]
        (lambda m: TMLNKFAC(m, labels="none"), ValueError, "unknown"),  # type: ignore[arg-type]
        (lambda m: TMLNKFAC(m, update_every=0), ValueError, "update_every"),
        (lambda m: TMLNKFAC(nn.BatchNorm1d(3)), ValueError, "no trainable Linear"),
        (lambda m: TMLNKFAC(m).load_state_dict(TMLN(m.parameters()).state_dict()), ValueError, "'curvature'"),
        (lambda m: TMLNKFAC(m, factors="running").step(), RuntimeError, "observe"),
    ],
)
def test_what_makes_no_sense_is_refused(act: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        act(linear_network())


def test_a_boundary_wants_the_memory_where_factors_are_measured_on_it() -> None:
    for factors, batches in (("boundary", None), ("running", MEMORY)):
        model = linear_network()
        optimizer = TMLNKFAC(model, factors=factors)  # type: ignore[arg-type]
        train(model, optimizer, range(1))
        with pytest.raises(TypeError, match="batches"):
            optimizer.consolidate(diagonal_fisher(model, MEMORY), batches)


def test_examples() -> None:
    for module in (tmln.optim.tmln_kfac, tmln.curvature.kfac_factors):
        names = {"torch": torch, "nn": nn}
        assert doctest.testmod(module, extraglobs=names).failed == 0
