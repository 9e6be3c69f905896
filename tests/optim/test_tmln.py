"""The TMLN optimizer: hand vectors, an oracle in plain Python, the contract of torch.optim, and bad input."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.zoo import channels_last, cnn_with_batch_norm, images
from tmln.curvature import diagonal_fisher
from tmln.optim import TMLN
from tmln.optim.tmln import preconditioner, sensitivity_score

D = torch.float64


def take_steps(optimizer: torch.optim.Optimizer, p: Tensor, gradient: Callable[[Tensor], Tensor], steps: int) -> None:
    for _ in range(steps):
        p.grad = gradient(p.detach())
        optimizer.step()


def first_task(p: Tensor) -> Tensor:
    return torch.stack([2 * (p[0] - 1), p[1] + 1])


def second_task(p: Tensor) -> Tensor:
    return torch.stack([p[0] + 1, 3 * (p[1] - 1)])


def close(a: Tensor, b: list[float], tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(a.detach(), torch.tensor(b, dtype=a.dtype), rtol=tolerance, atol=tolerance)


def vector(**options: Any) -> tuple[nn.Parameter, TMLN]:
    p = nn.Parameter(torch.zeros(2, dtype=D))
    return p, TMLN([p], lr=0.1, damping=0.5, trajectory=2.0, **options)


# -- hand vectors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("foreach", [None, True, False])
def test_two_tasks_by_hand(foreach: bool | None) -> None:
    p, optimizer = vector(foreach=foreach)
    take_steps(optimizer, p, first_task, 1)
    close(p, [0.4, -0.2])
    take_steps(optimizer, p, first_task, 1)
    close(p, [0.64, -0.36])
    close(optimizer.path(p), [1.088, 0.328])
    optimizer.consolidate([torch.tensor([0.5, 0.1], dtype=D)])
    close(optimizer.state[p]["sensitivity"], [1.0, 0.3014705882], 1e-10)
    close(optimizer.state[p]["anchor"], [0.64, -0.36])
    close(optimizer.path(p), [0.0, 0.0])
    take_steps(optimizer, p, second_task, 1)
    close(p, [0.5853333333, -0.0208312958], 1e-9)
    close(optimizer.path(p), [0.0896533333, 1.383808313], 1e-9)
    optimizer.consolidate([torch.tensor([0.3, 0.2], dtype=D)])
    close(optimizer.state[p]["sensitivity"], [1.4987716973, 1.3014705882], 1e-9)
    close(optimizer.state[p]["fisher"], [0.3, 0.2])


def test_the_score_by_hand() -> None:
    path = torch.tensor([0.0896533333333333, 1.3838083130], dtype=D)
    moved = torch.tensor([-0.0546666666666667, 0.3391687042], dtype=D)
    fisher = torch.tensor([0.5, 0.1], dtype=D)
    close(sensitivity_score(path, moved, fisher, 1e-8), [119.9983938, 240.5878170], 1e-8)
    assert sensitivity_score(-path, moved, fisher, 1e-8).tolist() == [0.0, 0.0]


def test_the_denominator_by_hand() -> None:
    metric = preconditioner(torch.tensor([0.5, 0.1], dtype=D), torch.tensor([1.0, 0.3014705882], dtype=D), 0.5, 2.0)
    close(1 / metric, [3.0, 1.2029411764])


def test_one_step_task_scores_are_the_denominators() -> None:
    """s = relu(eta g^2/d) / (F eta^2 g^2/(2 d^2)) = 2 d / (eta F), whatever the gradient."""
    p, optimizer = vector(eps=1e-300)
    take_steps(optimizer, p, first_task, 2)
    optimizer.consolidate([torch.tensor([0.5, 0.1], dtype=D)])
    before = optimizer.state[p]["sensitivity"].clone()
    p.grad = torch.tensor([0.37, -12.0], dtype=D)
    optimizer.step()
    outcome = optimizer.consolidate([torch.tensor([0.5, 0.1], dtype=D)])
    expected = [2 * 3.0 / (0.1 * 0.5), 2 * 1.2029411764705882 / (0.1 * 0.1)]
    assert outcome.peak == pytest.approx(expected[1], rel=1e-9)
    close(optimizer.state[p]["sensitivity"] - before, [expected[0] / expected[1], 1.0])


def test_one_step_euclidean_task_scores_are_the_denominators_too() -> None:
    p, optimizer = vector(geometry="euclidean", eps=1e-300)
    take_steps(optimizer, p, first_task, 2)
    optimizer.consolidate()
    shield = optimizer.state[p]["sensitivity"].clone()
    p.grad = torch.tensor([3.0, 0.01], dtype=D)
    optimizer.step()
    denominators = 0.5 + 2 * shield  # no F in the step
    outcome = optimizer.consolidate()
    assert outcome.peak == pytest.approx(float(denominators.max() / 0.1), rel=1e-9)
    close(optimizer.state[p]["sensitivity"] - shield, (denominators / denominators.max()).tolist())


def test_proximal_form_by_hand() -> None:
    p, optimizer = vector(form="proximal")
    take_steps(optimizer, p, first_task, 1)
    close(p, [0.2, -0.1])  # 1/(1/eta) = eta: plain gradient descent
    optimizer.consolidate([torch.tensor([0.5, 0.1], dtype=D)])
    close(optimizer.state[p]["sensitivity"], [1.0, 0.25])
    p.grad = torch.tensor([1.0, 1.0], dtype=D)
    optimizer.step()
    close(p, [0.2 - 1 / (0.5 + 10 + 2.0), -0.1 - 1 / (0.1 + 10 + 0.5)])


def test_current_fisher_in_the_score() -> None:
    p, optimizer = vector(score_fisher="current")
    take_steps(optimizer, p, first_task, 2)
    optimizer.consolidate([torch.tensor([0.5, 0.1], dtype=D)])
    s = torch.tensor([1.088 / (0.25 * 0.64**2 + 1e-8), 0.328 / (0.05 * 0.36**2 + 1e-8)], dtype=D)
    close(optimizer.state[p]["sensitivity"], (s / s.max()).tolist())


def test_a_maximum_for_each_tensor() -> None:
    a, b = (nn.Parameter(torch.zeros(2, dtype=D)) for _ in range(2))
    optimizer = TMLN([a, b], lr=0.1, score_max="tensor")
    a.grad, b.grad = torch.tensor([1.0, 2.0], dtype=D), torch.tensor([10.0, 5.0], dtype=D)
    optimizer.step()
    optimizer.consolidate([torch.ones(2, dtype=D)] * 2)
    close(optimizer.state[a]["sensitivity"], [0.25, 1.0])
    close(optimizer.state[b]["sensitivity"], [1.0, 0.25])


# -- an oracle: the algorithm as printed, with the real displacement -------------------------------------------------


class Plain:
    """Algorithm 1 with momentum and decay, for one parameter, nothing shared with the optimizer."""

    def __init__(self, theta: Tensor, **o: Any) -> None:
        self.theta, self.o = theta.clone(), o
        self.F, self.S, self.omega, self.v = (torch.zeros_like(theta) for _ in range(4))
        self.m, self.squares, self.t = torch.zeros_like(theta), torch.zeros_like(theta), 0
        self.anchor = theta.clone()

    def step(self, g: Tensor) -> None:
        o = self.o
        lam = 1 / o["lr"] if o.get("form") == "proximal" else o["damping"]
        task = -g if o.get("maximize") else g
        clip = o.get("clip_norm")
        used = task * min(1.0, clip / (float(task.norm()) + 1e-6)) if clip else task
        self.v = o.get("momentum", 0.0) * self.v + used + o.get("weight_decay", 0.0) * self.theta
        if o.get("base") == "adam":
            self.v = lam * (self.adam(used) + o.get("weight_decay", 0.0) * self.theta)
        move = -self.v / (self.F + lam + o["trajectory"] * self.S)
        new = self.theta + o["lr"] * (
            move if o.get("form") != "proximal" or o.get("base") == "adam" else move / o["lr"]
        )
        self.omega = self.omega - task * (new - self.theta)
        self.theta = new

    def adam(self, g: Tensor) -> Tensor:
        b1, b2 = self.o.get("betas", (0.9, 0.999))
        self.t += 1
        self.m, self.squares = b1 * self.m + (1 - b1) * g, b2 * self.squares + (1 - b2) * g * g
        mean, square = self.m / (1 - b1**self.t), self.squares / (1 - b2**self.t)
        direction: Tensor = mean / (square.sqrt() + 1e-8)
        return direction

    def consolidate(self, fisher: Tensor) -> None:
        moved = (self.theta - self.anchor) ** 2
        metric = self.F * moved / 2 if self.o.get("geometry", "fisher") == "fisher" else moved
        s = self.omega.clamp(min=0) / (metric + 1e-8)
        if s.max() > 0:
            self.S = self.o.get("decay", 1.0) * self.S + s / s.max()
        self.F = torch.zeros_like(fisher) if self.o.get("geometry") == "euclidean" else fisher
        self.anchor, self.omega = self.theta.clone(), torch.zeros_like(self.omega)
        if not self.o.get("keep_momentum"):
            self.v, self.m, self.squares = (torch.zeros_like(self.v) for _ in range(3))
            self.t = 0


OPTIONS: list[dict[str, Any]] = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "keep_momentum": True},
    {"weight_decay": 0.05},
    {"momentum": 0.8, "weight_decay": 0.01, "clip_norm": 0.5},
    {"clip_norm": 0.3},
    {"maximize": True},
    {"maximize": True, "momentum": 0.5, "weight_decay": 0.1},
    {"form": "proximal"},
    {"form": "proximal", "momentum": 0.9},
    {"geometry": "euclidean"},
    {"geometry": "euclidean-score", "momentum": 0.9},
    {"trajectory": 0.0},
    {"decay": 0.7},
    {"base": "adam"},
    {"base": "adam", "betas": (0.5, 0.8), "keep_momentum": True, "weight_decay": 0.1},
    {"base": "adam", "form": "proximal", "maximize": True, "clip_norm": 0.5},
]


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_against_the_oracle(options: dict[str, Any], foreach: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    base = {"lr": 0.05, "damping": 0.3, "trajectory": 1.5} | options
    p = nn.Parameter(torch.randn(7, generator=generator, dtype=D))
    optimizer, plain = TMLN([p], foreach=foreach, **base), Plain(p.detach(), **base)
    for _ in range(3):
        for _ in range(6):
            g = torch.randn(7, generator=generator, dtype=D)
            p.grad = g.clone()
            optimizer.step()
            plain.step(g)
        torch.testing.assert_close(p.detach(), plain.theta, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(optimizer.path(p), plain.omega, rtol=1e-9, atol=1e-13)
        fisher = torch.rand(7, generator=generator, dtype=D)
        optimizer.consolidate() if options.get("geometry") == "euclidean" else optimizer.consolidate([fisher])
        plain.consolidate(fisher)
        torch.testing.assert_close(optimizer.state[p]["sensitivity"], plain.S, rtol=1e-8, atol=1e-10)


@settings(max_examples=40, deadline=None)
@given(
    g=st.lists(st.floats(-100, 100), min_size=3, max_size=3),
    lr=st.floats(1e-4, 1.0),
    damping=st.floats(1e-3, 10.0),
    trajectory=st.floats(0.0, 10.0),
)
def test_the_path_is_never_negative_and_shields_stay_in_range(
    g: list[float], lr: float, damping: float, trajectory: float
) -> None:
    p = nn.Parameter(torch.zeros(3, dtype=D))
    optimizer = TMLN([p], lr=lr, damping=damping, trajectory=trajectory)
    for task in range(1, 4):
        for k in range(3):
            p.grad = torch.tensor(g, dtype=D) * (k - 1.2)
            optimizer.step()
        assert (optimizer.path(p) >= 0).all()
        optimizer.consolidate([torch.full((3,), 0.2, dtype=D)])
        shield = optimizer.state[p]["sensitivity"]
        assert (shield >= 0).all()
        assert (shield <= task + 1e-12).all()
        if any(abs(v) > 1e-100 for v in g):  # below, squares underflow
            assert float(shield.max()) >= 1.0


# -- degenerate cases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "weight_decay": 1e-2}], ids=str)
def test_first_task_is_sgd_at_lr_over_damping(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    ours, theirs = nn.Linear(5, 3).double(), nn.Linear(5, 3).double()
    theirs.load_state_dict(ours.state_dict())
    a = TMLN(ours.parameters(), lr=0.01, damping=0.1, **options)
    b = torch.optim.SGD(theirs.parameters(), lr=0.1, **options)
    for _ in range(10):
        x, y = torch.randn(4, 5, dtype=D), torch.randint(3, (4,))
        for model, optimizer in ((ours, a), (theirs, b)):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-14)


def test_static_ignores_the_shield_and_flat_metric_is_sgd() -> None:
    p, optimizer = vector()
    optimizer.param_groups[0]["trajectory"] = 0.0
    take_steps(optimizer, p, first_task, 2)
    optimizer.consolidate([torch.zeros(2, dtype=D)])
    at = p.detach().clone()
    p.grad = torch.tensor([1.0, -1.0], dtype=D)
    optimizer.step()
    close(p, (at - torch.tensor([0.2, -0.2], dtype=D)).tolist(), 1e-14)  # F = 0, gamma = 0: eta/lambda again


def test_a_gradient_within_the_clipping_norm_is_left_alone() -> None:
    (p, plain), (q, clipped) = vector(), vector(clip_norm=4.0)
    p.grad = torch.tensor([1.0, -2.0], dtype=D)
    q.grad = p.grad.clone()
    plain.step()
    clipped.step()
    assert torch.equal(p, q)


def test_no_movement_adds_no_shield() -> None:
    p, optimizer = vector()
    p.grad = torch.zeros(2, dtype=D)
    optimizer.step()
    outcome = optimizer.consolidate([torch.ones(2, dtype=D)])
    assert (outcome.peak, outcome.active, outcome.mass) == (0.0, 0.0, {p: 0.0})
    assert optimizer.state[p]["sensitivity"].tolist() == [0.0, 0.0]


def test_shielded_parameters_move_less() -> None:
    p, optimizer = vector()
    p.grad = torch.tensor([1.0, 0.0], dtype=D)
    optimizer.step()
    optimizer.consolidate([torch.tensor([2.0, 0.0], dtype=D)])
    at = p.detach().clone()
    p.grad = torch.tensor([1.0, 1.0], dtype=D)
    optimizer.step()
    moved = (p.detach() - at).abs()
    close(moved, [0.1 / (2.0 + 0.5 + 2.0), 0.1 / 0.5])


# -- a path walked under several metrics -----------------------------------------------------------------------------


def test_changing_damping_or_rate_within_a_task_keeps_the_path() -> None:
    for form in ("scaled", "proximal"):
        p = nn.Parameter(torch.zeros(2, dtype=D))
        optimizer = TMLN([p], lr=0.1, damping=0.5, form=form)
        omega = torch.zeros(2, dtype=D)
        for k in range(6):
            if k == 3:
                optimizer.param_groups[0]["damping"] = 2.0
            optimizer.param_groups[0]["lr"] = 0.1 / (k + 1)
            old, g = p.detach().clone(), torch.tensor([1.0 + k, -2.0], dtype=D)
            p.grad = g
            optimizer.step()
            omega -= g * (p.detach() - old)
        torch.testing.assert_close(optimizer.path(p), omega, rtol=1e-12, atol=1e-15)


def test_refresh_changes_the_metric_and_keeps_the_path() -> None:
    p, optimizer = vector()
    take_steps(optimizer, p, first_task, 2)
    optimizer.refresh([torch.tensor([1.0, 0.0], dtype=D)])
    close(optimizer.path(p), [1.088, 0.328])
    at = p.detach().clone()
    p.grad = torch.tensor([1.0, 1.0], dtype=D)
    optimizer.step()
    close(at - p.detach(), [0.1 / 1.5, 0.1 / 0.5])
    close(optimizer.path(p), [1.088 + 0.1 / 1.5, 0.328 + 0.2])


# -- the contract of torch.optim --------------------------------------------------------------------------------------


def small(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def batch(k: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k)
    return torch.randn(5, 6, generator=generator), torch.randint(3, (5,), generator=generator)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, start: int, stop: int) -> None:
    for k in range(start, stop):
        x, y = batch(k)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_foreach_and_plain_are_bit_equal(options: dict[str, Any]) -> None:
    results = []
    for foreach in (True, False):
        model = small()
        optimizer = TMLN(model.parameters(), foreach=foreach, **options)
        for task in range(2):
            train(model, optimizer, 5 * task, 5 * task + 5)
            fisher = None if options.get("geometry") == "euclidean" else diagonal_fisher(model, [batch(99)])
            optimizer.consolidate(fisher)
        results.append(weights(model))
    assert torch.equal(*results)


@pytest.mark.parametrize("when", [3, 5, 8])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_state_dict_round_trip_goes_on_exactly(options: dict[str, Any], when: int) -> None:
    """Save in the first task, at the boundary, in the second; a new optimizer goes on bit for bit."""

    def run(model: nn.Module, optimizer: TMLN, start: int, stop: int) -> None:
        for k in range(start, stop):
            if k == 5:
                euclidean = options.get("geometry") == "euclidean"
                optimizer.consolidate(None if euclidean else diagonal_fisher(model, [batch(99)]))
            train(model, optimizer, k, k + 1)
            if k == 6:
                optimizer.param_groups[0]["damping"] = 0.7  # saved between this and the next step at when=7..8
        optimizer.param_groups[0]["lr"] = 0.02

    one = small()
    first = TMLN(one.parameters(), **options)
    run(one, first, 0, when)
    file = io.BytesIO()
    torch.save({"model": one.state_dict(), "optimizer": first.state_dict()}, file)
    run(one, first, when, 10)

    two = small(seed=1)
    second = TMLN(two.parameters(), **options)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    assert all("preconditioner" not in state for state in saved["optimizer"]["state"].values())
    two.load_state_dict(saved["model"])
    second.load_state_dict(saved["optimizer"])
    run(two, second, when, 10)
    assert torch.equal(weights(one), weights(two))
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(first.path(p), second.path(q))
        assert torch.equal(first.state[p]["sensitivity"], second.state[q]["sensitivity"])


def test_a_state_of_other_names_is_refused() -> None:
    model = nn.ModuleDict({"first": nn.Linear(2, 2), "second": nn.Linear(2, 2)})
    first, second = (TMLN(model[name].named_parameters(prefix=name)) for name in ("first", "second"))
    with pytest.raises(ValueError, match=r"state is that of 'first\.weight', and this optimizer has 'second\.weight'"):
        second.load_state_dict(first.state_dict())
    TMLN(model["second"].parameters()).load_state_dict(first.state_dict())  # nothing is known of these
    wrapped = TMLN(nn.DataParallel(model["first"]).named_parameters(prefix="first"))
    wrapped.load_state_dict(first.state_dict())


def test_state_moves_to_the_dtype_of_the_parameters() -> None:
    model = small()
    optimizer = TMLN(model.parameters())
    train(model, optimizer, 0, 3)
    saved = optimizer.state_dict()
    for dtype, state_dtype in ((D, D), (torch.bfloat16, torch.float32)):
        other = small().to(dtype)
        loaded = TMLN(other.parameters())
        loaded.load_state_dict(saved)
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            state = loaded.state[q]
            assert {value.dtype for value in state.values()} == {state_dtype}
            torch.testing.assert_close(loaded.path(q).float(), optimizer.path(p), rtol=1e-6, atol=0)
            assert state["anchor"].data_ptr() != optimizer.state[p]["anchor"].data_ptr()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_half_precision_parameters(momentum: float) -> None:
    model = small().bfloat16()
    optimizer = TMLN(model.parameters(), momentum=momentum)
    for k in range(4):
        x, y = batch(k)
        optimizer.zero_grad()
        F.cross_entropy(model(x.bfloat16()).float(), y).backward()
        optimizer.step()
    optimizer.consolidate(diagonal_fisher(model, [(batch(9)[0].bfloat16(), batch(9)[1])]))
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())
    assert all(optimizer.state[p]["sensitivity"].dtype == torch.float32 for p in model.parameters())


def test_pickle_and_deepcopy() -> None:
    model = small()
    optimizer = TMLN(model.parameters(), clip_norm=0.1)
    train(model, optimizer, 0, 3)
    for copied, double in (copy.deepcopy((model, optimizer)), pickle.loads(pickle.dumps((model, optimizer)))):
        straight_model, straight = copy.deepcopy((model, optimizer))
        train(copied, double, 3, 6)
        train(straight_model, straight, 3, 6)
        assert torch.equal(weights(copied), weights(straight_model))
        assert not torch.equal(weights(copied), weights(model))


def test_parameter_groups_have_their_own_numbers() -> None:
    a, b = (nn.Parameter(torch.zeros(1, dtype=D)) for _ in range(2))
    optimizer = TMLN([{"params": [a], "lr": 0.2, "damping": 2.0}, {"params": [b], "trajectory": 0.0}], lr=0.1)
    a.grad = b.grad = torch.ones(1, dtype=D)
    optimizer.step()
    assert (a.item(), b.item()) == (-0.1, -1.0)
    optimizer.consolidate({a: torch.zeros(1, dtype=D), b: torch.zeros(1, dtype=D)})
    optimizer.step()
    # omega = (0.1, 1): scores 0.1 and 1
    assert a.item() == pytest.approx(-0.1 - 0.2 / (2.0 + 0.1))
    assert b.item() == pytest.approx(-2.0)


def test_a_group_may_join_later() -> None:
    a, b = (nn.Parameter(torch.ones(1, dtype=D)) for _ in range(2))
    optimizer = TMLN([a], lr=0.1, damping=1.0)
    a.grad = torch.ones(1, dtype=D)
    optimizer.step()
    optimizer.consolidate([torch.ones(1, dtype=D)])
    optimizer.add_param_group({"params": [b], "damping": 0.5})
    b.grad = torch.ones(1, dtype=D)
    optimizer.step()
    assert b.item() == pytest.approx(0.8)
    assert optimizer.state[b]["anchor"].item() == 1.0
    optimizer.consolidate({a: torch.ones(1, dtype=D), b: torch.ones(1, dtype=D)})
    assert optimizer.state[b]["fisher"].item() == 1.0


def test_a_refused_group_leaves_no_trace() -> None:
    _, optimizer = vector()
    with pytest.raises(ValueError, match="damping"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))], "damping": 0.0})
    assert len(optimizer.param_groups) == 1


def test_closures_schedulers_and_missing_gradients() -> None:
    model = small()
    frozen, unused = list(model.parameters())[1], nn.Parameter(torch.ones(2))
    frozen.requires_grad_(False)
    at = frozen.clone()
    optimizer = TMLN([*model.parameters(), unused], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    def closure() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch(0)[0]), batch(0)[1])
        loss.backward()
        return loss.item()

    first = optimizer.step(closure)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
    assert optimizer.step(closure) < first
    assert torch.equal(frozen, at)
    assert unused.tolist() == [1.0, 1.0]
    fisher = diagonal_fisher(model, [batch(0)])
    optimizer.consolidate({**{fisher.parameters[k]: v for k, v in fisher.items()}, unused: torch.ones(2)})
    assert optimizer.state[unused]["fisher"].tolist() == [1.0, 1.0]
    assert frozen not in optimizer.state


def test_gradient_accumulation_is_one_larger_batch() -> None:
    one, two = small(), small()
    a, b = TMLN(one.parameters()), TMLN(two.parameters())
    x, y = batch(0)
    F.cross_entropy(one(x), y).backward()
    a.step()
    for rows in (slice(0, 2), slice(2, 5)):
        (F.cross_entropy(two(x[rows]), y[rows], reduction="sum") / 5).backward()
    b.step()
    torch.testing.assert_close(weights(one), weights(two))


def test_under_grad_scaler_and_autocast() -> None:
    model = small()
    optimizer = TMLN(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    before = weights(model).clone()
    for k in range(3):
        x, y = batch(k)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert not torch.equal(before, weights(model))
    plain = small()
    other = TMLN(plain.parameters())
    for k in range(3):
        x, y = batch(k)
        other.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(plain(x), y)
        loss.backward()
        other.step()
    torch.testing.assert_close(weights(model), weights(plain), rtol=1e-2, atol=1e-4)


@pytest.mark.slow
def test_in_a_compiled_training_step() -> None:
    def once(model: nn.Module, optimizer: TMLN, x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    results = []
    for compiled in (True, False):
        model = small()
        optimizer = TMLN(model.parameters())
        step = torch.compile(once, backend="eager") if compiled else once
        for task in range(2):
            for k in range(3):
                step(model, optimizer, *batch(3 * task + k))
            optimizer.consolidate(diagonal_fisher(model, [batch(9)]))
        results.append(weights(model))
    torch.testing.assert_close(*results)


def test_the_optimizer_sees_what_diagonal_fisher_gives() -> None:
    torch.manual_seed(0)
    model = channels_last(cnn_with_batch_norm())
    optimizer = TMLN(model.parameters())
    x, y = images(9)(8)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    fisher = diagonal_fisher(model, [(x, y)])
    optimizer.consolidate(fisher)
    for name, p in model.named_parameters():
        assert torch.equal(optimizer.state[p]["fisher"], fisher[name])
        for value in optimizer.state[p].values():
            assert value.stride() == p.stride()  # one layout: the fused step does not fall back to strided loops


def test_names_work_when_the_optimizer_knows_them() -> None:
    model = small()
    optimizer = TMLN(model.named_parameters())
    train(model, optimizer, 0, 1)
    optimizer.consolidate(dict(diagonal_fisher(model, [batch(0)])))
    with pytest.raises(KeyError, match=r"names '9\.weight'"):
        optimizer.consolidate({"9.weight": torch.zeros(1)})


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("lr", -0.1),
        ("lr", float("nan")),
        ("damping", 0.0),
        ("damping", -1.0),
        ("trajectory", -1.0),
        ("eps", 0.0),
        ("momentum", -0.9),
        ("weight_decay", -1e-4),
        ("clip_norm", 0.0),
        ("geometry", "riemannian"),
        ("form", "scale"),
        ("score_fisher", "next"),
        ("score_max", "layer"),
        ("base", "adamw"),
        ("betas", (0.9, 1.0)),
        ("betas", (0.9,)),
        ("base_eps", 0.0),
        ("decay", 1.1),
        ("decay", -0.1),
    ],
)
def test_values_out_of_range(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        TMLN([nn.Parameter(torch.zeros(1))], **{option: value})


def fisher_errors() -> dict[str, tuple[Any, type[Exception], str]]:
    good = torch.ones(2, dtype=D)
    return {
        "none": (None, TypeError, "diagonal_fisher"),
        "too few": ([], ValueError, "1 parameters, 0 tensors"),
        "wrong shape": ([torch.ones(3, dtype=D)], ValueError, r"shape \(3,\), expected \(2,\)"),
        "negative": ([-good], ValueError, "negative"),
        "not finite": ([good * float("nan")], ValueError, "not finite"),
        "names": ({"weight": good}, KeyError, "'weight'"),
        "another model": ({nn.Parameter(good): good}, KeyError, "no entry for parameter 0 of group 0"),
    }


@pytest.mark.parametrize("case", fisher_errors())
def test_a_bad_fisher_changes_nothing(case: str) -> None:
    fisher, error, words = fisher_errors()[case]
    p, optimizer = vector()
    take_steps(optimizer, p, first_task, 2)
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(error, match=words):
        optimizer.consolidate(fisher)
    after = optimizer.state_dict()
    for key, value in before["state"][0].items():
        assert torch.equal(value, after["state"][0][key])
    close(optimizer.path(p), [1.088, 0.328])


def test_boundaries_that_cannot_be() -> None:
    p, optimizer = vector()
    with pytest.raises(RuntimeError, match="before any step"):
        optimizer.consolidate([torch.ones(2, dtype=D)])
    euclidean = vector(geometry="euclidean")
    take_steps(euclidean[1], euclidean[0], first_task, 1)
    with pytest.raises(TypeError, match="without one"):
        euclidean[1].consolidate([torch.ones(2, dtype=D)])
    with pytest.raises(KeyError, match="not a parameter"):
        optimizer.path(nn.Parameter(torch.zeros(1)))
    p.grad = torch.tensor([float("inf"), 1.0], dtype=D)
    optimizer.step()
    with pytest.raises(FloatingPointError, match="path integral of parameter 0 of group 0"):
        optimizer.consolidate([torch.ones(2, dtype=D)])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nonfinite_gradients_are_refused_on_request(bad: float) -> None:
    model = small()
    optimizer = TMLN(model.named_parameters(), error_if_nonfinite=True)
    train(model, optimizer, 0, 2)
    before = weights(model)
    F.cross_entropy(model(batch(0)[0]), batch(0)[1]).backward()
    list(model.parameters())[3].grad[1] = bad  # type: ignore[index]
    with pytest.raises(FloatingPointError, match=r"'2\.bias' is not finite"):
        optimizer.step()
    assert torch.equal(before, weights(model))


def test_sparse_and_complex_are_refused() -> None:
    embedding = nn.Embedding(4, 2, sparse=True)
    optimizer = TMLN(embedding.parameters())
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(TypeError, match="dense"):
        optimizer.step()
    p = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    p.grad = torch.ones_like(p)
    with pytest.raises(TypeError, match="real parameters"):
        TMLN([p]).step()
