"""FOPNG: by hand, the minimum that it claims to be, the public code's rule, its state, bad input."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.test_tmln import D, batch, close, small, train, weights
from tmln.curvature import diagonal_fisher
from tmln.optim import FOPNG
from tmln.optim.fopng import gram, invert_gram, output_gradients, project


def test_a_step_by_hand() -> None:
    """F_old = (1, 2), G = (1, 1): v is along (2, -1). F_new = (1, 4): v'F_new v = 1 at (2, -1)/sqrt(8)."""
    p = nn.Parameter(torch.zeros(2, dtype=D))
    optimizer = FOPNG([p], lr=0.1, damping=1e-13)
    optimizer.consolidate([torch.tensor([1.0, 2.0], dtype=D)], {p: torch.ones(1, 2, dtype=D)})
    optimizer.begin([torch.tensor([1.0, 4.0], dtype=D)])
    p.grad = torch.tensor([3.0, 1.0], dtype=D)
    optimizer.step()
    close(p, [-0.1 * 2 / 8**0.5, 0.1 / 8**0.5])


def test_fishers_are_halved_together_and_directions_shared_out_by_hand() -> None:
    p = nn.Parameter(torch.zeros(1, dtype=D))
    optimizer = FOPNG([p], most=4)
    for task, fisher in enumerate((4.0, 2.0, 1.0)):
        rows = 10.0 * task + torch.arange(3.0, dtype=D)[:, None]
        optimizer.consolidate([torch.tensor([fisher], dtype=D)], {p: rows})
    assert optimizer.state[p]["fisher_old"].item() == ((4 + 2) / 2 + 1) / 2
    assert optimizer.counts == [1, 1, 1]
    assert optimizer.state[p]["directions"].flatten().tolist() == [0.0, 10.0, 20.0]


def test_of_more_tasks_than_directions_the_newest_have_one_each() -> None:
    p = nn.Parameter(torch.zeros(1, dtype=D))
    optimizer = FOPNG([p], most=2)
    for task in range(4):
        optimizer.consolidate([torch.ones(1, dtype=D)], {p: torch.tensor([[float(task)], [9.0]], dtype=D)})
    assert optimizer.counts == [1, 1]
    assert optimizer.state[p]["directions"].flatten().tolist() == [2.0, 3.0]


@pytest.mark.parametrize("first", ["adam", "sgd"])
def test_the_first_task_is_plain(first: Any) -> None:
    ours, theirs = small(), small()
    plain: dict[str, torch.optim.Optimizer] = {
        "adam": torch.optim.Adam(theirs.parameters(), 0.01),
        "sgd": torch.optim.SGD(theirs.parameters(), 0.01),
    }
    train(ours, FOPNG(ours.parameters(), 0.01, first=first), 0, 5)
    train(theirs, plain[first], 0, 5)
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-5, atol=1e-6)


def drawn(rows: int, seed: int = 0) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    """g, F_old, F_new and G of two tensors."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(3, 2), (4,)]
    normal = [torch.randn(shape, generator=generator, dtype=D) for shape in shapes]
    old, new = ([torch.rand(shape, generator=generator, dtype=D) for shape in shapes] for _ in range(2))
    return normal, old, new, [torch.randn(rows, *shape, generator=generator, dtype=D) for shape in shapes]


def flat(xs: list[Tensor], skip: int = 0) -> Tensor:
    return torch.cat([x.flatten(skip) for x in xs], skip)


@pytest.mark.parametrize("repeated", [False, True])
def test_it_is_the_steepest_of_all_orthogonal_moves(repeated: bool) -> None:
    """Against the null space of G'F_old, taken by SVD, in which the minimum is a plain natural gradient."""
    g, old, new, stack = drawn(3)
    if repeated:  # directions that depend on each other
        stack = [torch.cat([s, 2 * s[:1], torch.zeros_like(s[:1])]) for s in stack]
    solve = invert_gram(gram(old, new, stack, 0.1), "orthogonal", 0.1, torch.finfo(D).eps)
    found = flat(project(g, old, new, stack, solve, 0.1, "orthogonal"))
    constraint, metric = flat(stack, 1) * flat(old), torch.diag(flat(new) + 0.1)
    close(constraint @ found, [0.0] * len(constraint))
    free = torch.linalg.svd(constraint)[2][3:].T
    best = free @ torch.linalg.solve(free.T @ metric @ free, free.T @ flat(g))
    close(found, (best / (best @ metric @ best).sqrt()).tolist())


def test_the_public_codes_rule_in_full_matrices() -> None:
    """P = I - F_old G (G'F_old F_new^-1 F_old G + lambda)^-1 G'F_old, which leaves a part along G."""
    g, old, new, stack = drawn(3)
    solve = invert_gram(gram(old, new, stack, 0.1), "public", 0.1, 0.0)
    found = flat(project(g, old, new, stack, solve, 0.1, "public"))
    fisher, metric, rows = torch.diag(flat(old)), torch.diag(flat(new) + 0.1), flat(stack, 1)
    middle = rows @ fisher @ torch.linalg.inv(metric) @ fisher @ rows.T + 0.1 * torch.eye(3, dtype=D)
    rest = flat(g) - fisher @ rows.T @ torch.linalg.inv(middle) @ rows @ fisher @ flat(g)
    expected = torch.linalg.inv(metric) @ rest
    close(found, (expected / (rest @ expected).sqrt()).tolist())
    assert (rows @ fisher @ found).abs().max() > 1e-2


def test_output_gradients_one_by_one() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    x, y = batch(0)
    before = copy.deepcopy(model.state_dict())
    for of in ("mean", "label"):
        found = output_gradients(model, x, y, of)
        model.eval()
        for k in range(len(x)):
            output = model(x[k : k + 1])[0]
            value = output.mean() if of == "mean" else output[y[k]]
            for p, g in zip(model.parameters(), torch.autograd.grad(value, list(model.parameters())), strict=True):
                torch.testing.assert_close(found[p][k], g)
        model.train()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_closed_outputs_do_not_count() -> None:
    class Closed(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.tensor([0.0, 0.0, -torch.inf])

    model, x = Closed(6, 3), batch(0)[0]
    found = output_gradients(model, x, batch(0)[1])
    assert torch.allclose(found[model.bias], torch.tensor([0.5, 0.5, 0.0]).expand(len(x), 3))


def boundary(model: nn.Module, optimizer: FOPNG) -> None:
    fisher = diagonal_fisher(model, [batch(50)])
    optimizer.consolidate(fisher, output_gradients(model, *batch(50)))
    optimizer.begin(fisher)


def test_old_outputs_are_kept_better_than_without_the_projection() -> None:
    """Of the very samples that are stored, to first order, in the metric F_old."""
    moved = []
    for stored in (batch(50)[0], batch(50)[0][:0]):
        model = small()
        optimizer = FOPNG(model.parameters(), 0.01)
        train(model, optimizer, 0, 20)
        fisher = diagonal_fisher(model, [batch(50)])
        directions = output_gradients(model, batch(50)[0], batch(50)[1])
        kept = {p: d if len(stored) else torch.zeros_like(d) for p, d in directions.items()}
        optimizer.consolidate(fisher, kept)
        optimizer.begin(diagonal_fisher(model, [batch(60)]))
        before = [p.detach().clone() for p in model.parameters()]
        train(model, optimizer, 60, 61)
        pairs = zip(model.parameters(), before, strict=True)
        old = {p: optimizer.state[p]["fisher_old"] for p in model.parameters()}
        along = sum((directions[p] * old[p] * (p.detach() - b)).flatten(1).sum(1) for p, b in pairs)
        assert isinstance(along, Tensor)
        moved.append(float(along.abs().max()))
    assert moved[0] < 1e-3 * moved[1]


def test_a_state_goes_on_to_the_bit_and_copies_are_whole() -> None:
    one, two = small(), small(seed=1)
    first, second = FOPNG(one.parameters(), 0.01), FOPNG(two.parameters(), 0.01)
    train(one, first, 0, 3)
    boundary(one, first)
    train(one, first, 3, 5)
    two.load_state_dict(one.state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    three, third = copy.deepcopy((one, first))
    for model, optimizer in ((one, first), (two, second), (three, third)):
        train(model, optimizer, 5, 8)
        boundary(model, optimizer)
        train(model, optimizer, 8, 9)
    assert torch.equal(weights(one), weights(two))
    assert torch.equal(weights(one), weights(three))


def test_a_parameter_that_joins_later_moves() -> None:
    model = small()
    assert isinstance(model, nn.Sequential)
    first = model[0]
    assert isinstance(first, nn.Linear)
    first.requires_grad_(False)
    optimizer = FOPNG(model.parameters(), 0.01)
    train(model, optimizer, 0, 2)
    boundary(model, optimizer)
    first.requires_grad_(True)
    boundary(model, optimizer)
    before = first.weight.detach().clone()
    train(model, optimizer, 2, 3)
    assert not torch.equal(first.weight, before)


def test_no_gradient_no_move() -> None:
    model = small()
    optimizer = FOPNG(model.parameters(), 0.01)
    train(model, optimizer, 0, 2)
    boundary(model, optimizer)
    before = weights(model)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert torch.equal(weights(model), before)


def test_bad_input() -> None:
    for option, value in (("lr", -1.0), ("damping", 0.0), ("most", 0), ("projection", "exact"), ("first", "adamw")):
        with pytest.raises(ValueError, match=option):
            FOPNG([nn.Parameter(torch.zeros(1))], **{option: value})  # type: ignore[arg-type]
    model = small()
    optimizer = FOPNG(model.parameters(), 0.01)
    fisher = diagonal_fisher(model, [batch(0)])
    with pytest.raises(ValueError, match="as many rows"):
        optimizer.consolidate(fisher, {})
    optimizer.consolidate(fisher, output_gradients(model, *batch(0)))
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    optimizer.param_groups[1]["params"][0].grad = torch.ones(1)
    with pytest.raises(RuntimeError, match=r"optimizer\.begin\(fisher\)"):
        optimizer.step()
    with pytest.raises(ValueError, match="no FOPNG's"):
        optimizer.load_state_dict(torch.optim.SGD(model.parameters(), 0.1).state_dict())
