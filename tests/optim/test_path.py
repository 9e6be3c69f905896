"""TMLN's path integral: the task's gradient times the displacement that happened, whoever made it."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln.optim import TMLN

D = torch.float64


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=D)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(actual.detach(), expected, rtol=tolerance, atol=tolerance)


def one(**options: Any) -> tuple[nn.Parameter, TMLN]:
    p = nn.Parameter(torch.zeros(2, dtype=D))
    return p, TMLN([p], lr=0.1, damping=0.5, trajectory=2.0, **options)


def looked_step(p: nn.Parameter, optimizer: TMLN, task: Tensor, penalty: Tensor) -> None:
    p.grad = task.clone()
    optimizer.after_backward()
    p.grad += penalty
    optimizer.step()


@torch.no_grad()
def pull(p: Tensor, by: Tensor) -> None:
    p.add_(by)


# -- by hand ---------------------------------------------------------------------------------------------------------


def test_a_penalty_in_the_gradient_and_one_that_moves_by_hand() -> None:
    p, optimizer = one()
    looked_step(p, optimizer, vector(2.0, -1.0), vector(1.0, 1.0))
    close(p, vector(-0.6, 0.0))  # eta/lambda = 0.2 times (3, 0)
    close(optimizer.path(p), vector(1.2, 0.0))  # what is under way counts as if it ended here
    pull(p, vector(0.1, 0.1))
    optimizer.after_update()
    close(optimizer.path(p), vector(1.0, 0.1))  # -(2, -1) * (-0.5, 0.1)
    close(optimizer.state[p]["way"], vector(1.0, 0.1))
    assert not {"task_gradient", "departure"} & set(optimizer.state[p])
    optimizer.consolidate([torch.zeros(2, dtype=D)])
    close(optimizer.state[p]["sensitivity"], vector(1.0, 0.1))


def test_steps_with_and_without_a_look_add_up() -> None:
    p, optimizer = one()
    p.grad = vector(1.0, 2.0)
    optimizer.step()
    close(optimizer.path(p), vector(0.2, 0.8))
    looked_step(p, optimizer, vector(2.0, -1.0), vector(1.0, 1.0))
    optimizer.after_update()
    close(optimizer.path(p), vector(1.4, 0.8))
    p.grad = vector(1.0, 2.0)
    optimizer.step()
    close(optimizer.path(p), vector(1.6, 1.6))


def test_a_banked_path_ends_with_its_task() -> None:
    """Damping changes within the task, so that a part of the path is banked; the next task starts from nothing."""
    p, optimizer = one()
    for damping in (0.5, 1.0):
        optimizer.param_groups[0]["damping"] = damping
        p.grad = vector(1.0, 2.0)
        optimizer.step()
    close(optimizer.state[p]["path"], vector(0.2, 0.8))
    close(optimizer.path(p), vector(0.3, 1.2))
    optimizer.consolidate([torch.zeros(2, dtype=D)])
    close(optimizer.path(p), vector(0.0, 0.0))
    p.grad = vector(1.0, 1.0)
    optimizer.step()
    close(optimizer.path(p), vector(0.1 / (1 + 2 * 0.25), 0.1 / (1 + 2)))


# -- the oracle: write down g and the displacement ---------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {},
    {"foreach": False},
    {"momentum": 0.9},
    {"weight_decay": 0.05},
    {"clip_norm": 0.3},
    {"momentum": 0.8, "weight_decay": 0.01, "clip_norm": 0.5, "foreach": False},
    {"maximize": True},
    {"maximize": True, "momentum": 0.5, "weight_decay": 0.1},
    {"form": "proximal"},
    {"form": "proximal", "momentum": 0.9, "maximize": True},
    {"geometry": "euclidean"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_against_a_loop_that_writes_down_gradient_and_displacement(options: dict[str, Any]) -> None:
    source = torch.Generator().manual_seed(3)

    def draw(p: Tensor) -> Tensor:
        return torch.randn(p.shape, generator=source, dtype=D)

    a, b, late, idle = (nn.Parameter(torch.randn(n, generator=source, dtype=D)) for n in (5, 3, 2, 4))
    groups: list[dict[str, Any]] = [{"params": [a, late]}, {"params": [b, idle], "lr": 0.02, "damping": 0.7}]
    optimizer = TMLN(groups, lr=0.05, **options)
    sign = -1.0 if options.get("maximize") else 1.0
    for _task in range(2):
        omega = {p: torch.zeros_like(p) for p in (a, b, late, idle)}
        for k in range(6):
            optimizer.param_groups[0]["lr"] = 0.05 / (k + 1)
            optimizer.param_groups[1]["damping"] = 0.7 + k // 3
            seen = {p: draw(p) for p in ((a, b, late) if k > 2 else (a, b))}
            before = {p: p.detach().clone() for p in omega}
            for p, g in seen.items():
                p.grad = g.clone()
            optimizer.after_backward()
            assert a.grad is not None
            assert b.grad is not None
            a.grad.add_(draw(a))  # written into
            b.grad = b.grad + draw(b)  # replaced
            late.grad = draw(late) if late.grad is None else late.grad  # by the penalty alone
            optimizer.step()
            for p in (a, late, idle):
                pull(p, 0.1 * draw(p))
            optimizer.after_update()
            for p, g in seen.items():
                omega[p] -= sign * g * (p.detach() - before[p])
            for p in omega:
                close(optimizer.path(p), omega[p])
                p.grad = None
        fisher = {p: torch.rand(p.shape, generator=source, dtype=D) for p in omega}
        optimizer.consolidate(None if options.get("geometry") == "euclidean" else fisher)


def test_where_nothing_is_added_both_ways_agree() -> None:
    (p, plain), (q, looking) = one(momentum=0.9), one(momentum=0.9)
    for k in range(5):
        p.grad = vector(1.0 + k, -2.0)
        plain.step()
        q.grad = p.grad.clone()
        looking.after_backward()
        looking.step()
        looking.after_update()
        assert torch.equal(p, q)
        close(looking.path(q), plain.path(p))


# -- what is left open -----------------------------------------------------------------------------------------------


def left_open() -> tuple[nn.Parameter, TMLN]:
    p, optimizer = one()
    looked_step(p, optimizer, vector(2.0, -1.0), vector(1.0, 1.0))
    pull(p, vector(0.1, 0.1))
    return p, optimizer


def test_the_next_look_walks_what_is_open() -> None:
    p, optimizer = left_open()
    looked_step(p, optimizer, vector(1.0, 1.0), vector(0.0, 0.0))
    close(optimizer.path(p), vector(1.2, 0.3))
    optimizer.after_update()
    optimizer.after_update()  # nothing is open any more
    close(optimizer.path(p), vector(1.2, 0.3))


@pytest.mark.parametrize("late", [False, True])
def test_a_boundary_walks_what_is_open_and_closes_it(late: bool) -> None:
    p, optimizer = left_open()
    outcome = optimizer.consolidate([torch.zeros(2, dtype=D)])
    assert outcome.peak == pytest.approx(1.0 / 1e-8)
    close(optimizer.state[p]["sensitivity"], vector(1.0, 0.1))
    if late:
        pull(p, vector(1.0, 1.0))
        optimizer.after_update()
    close(optimizer.path(p), vector(0.0, 0.0))
    p.grad = vector(1.0, 1.0)
    optimizer.step()  # counts itself again
    close(optimizer.path(p), vector(0.1 / 2.5, 0.1 / 0.7))


def test_a_state_saved_in_between_goes_on() -> None:
    p, optimizer = one()
    looked_step(p, optimizer, vector(2.0, -1.0), vector(1.0, 1.0))
    file = io.BytesIO()
    torch.save({"p": p.detach(), "optimizer": optimizer.state_dict()}, file)
    close(optimizer.path(p), vector(1.2, 0.0))  # saving closed nothing
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    q, resumed = one()
    resumed.load_state_dict(saved["optimizer"])
    pull(q, saved["p"])
    for weights, each in ((p, optimizer), (q, resumed)):
        pull(weights, vector(0.1, 0.1))
        each.after_update()
        close(each.path(weights), vector(1.0, 0.1))
        weights.grad = vector(1.0, 1.0)
        each.step()
        close(each.path(weights), vector(1.2, 0.3))


def test_a_new_metric_in_between_leaves_it_open() -> None:
    changes: list[Callable[[TMLN], None]] = [
        lambda optimizer: optimizer.refresh([vector(1.0, 1.0)]),
        lambda optimizer: optimizer.param_groups[0].update(damping=3.0),
    ]
    for change in changes:
        p, optimizer = one()
        looked_step(p, optimizer, vector(2.0, -1.0), vector(1.0, 1.0))
        change(optimizer)
        close(optimizer.path(p), vector(1.2, 0.0))
        pull(p, vector(0.1, 0.1))
        optimizer.after_update()
        close(optimizer.path(p), vector(1.0, 0.1))


def test_walk_without_look_changes_nothing() -> None:
    p, optimizer = one()
    p.grad = vector(1.0, 2.0)
    optimizer.step()
    before = copy.deepcopy(optimizer.state_dict())
    pull(p, vector(1.0, 1.0))
    optimizer.after_update()
    after = optimizer.state_dict()
    assert before["param_groups"] == after["param_groups"]
    assert set(before["state"][0]) == set(after["state"][0])
    assert all(torch.equal(value, after["state"][0][key]) for key, value in before["state"][0].items())


def test_a_skipped_step_with_an_infinite_gradient_adds_nothing() -> None:
    """As a GradScaler does: the gradient overflowed, step() is not called, the scale is halved."""
    p, optimizer = one()
    looked_step(p, optimizer, vector(1.0, 2.0), vector(0.0, 0.0))
    optimizer.after_update()
    p.grad = vector(float("inf"), float("nan"))
    optimizer.after_backward()
    close(optimizer.path(p), vector(0.2, 0.8))
    optimizer.after_update()
    close(optimizer.path(p), vector(0.2, 0.8))


def test_look_within_a_closure() -> None:
    p, optimizer = one()

    def closure() -> float:
        p.grad = vector(2.0, -1.0)
        optimizer.after_backward()
        p.grad += vector(1.0, 1.0)
        return 1.5

    assert optimizer.step(closure) == 1.5
    optimizer.after_update()
    close(optimizer.path(p), vector(1.2, 0.0))


def test_look_refuses_what_step_refuses_and_leaves_no_trace() -> None:
    dense, table = nn.Parameter(torch.ones(1)), nn.Embedding(3, 2, sparse=True)
    optimizer = TMLN([dense, table.weight])
    dense.grad = torch.ones(1)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(TypeError, match="dense"):
        optimizer.after_backward()
    assert not any(optimizer.state.values())
    assert not optimizer.param_groups[0]["looked"]


def test_look_asks_for_no_gradients() -> None:
    p, optimizer = one()
    p.grad = vector(1.0, 1.0)
    optimizer.after_backward()
    assert not optimizer.state[p]["departure"].requires_grad
    p.sum().backward()  # accumulates into .grad
    close(optimizer.state[p]["task_gradient"], vector(1.0, 1.0))


# -- metrics that change before the first step -------------------------------------------------------------------------


@pytest.mark.parametrize("peek", [lambda optimizer, p: optimizer.path(p), lambda optimizer, p: None])
def test_looking_at_a_path_fixes_no_metric(peek: Callable[[TMLN, Tensor], object]) -> None:
    """The preconditioner that path() makes must not outlive a change of the numbers it was made with."""
    p, optimizer = one(form="proximal")
    optimizer.refresh([vector(1.0, 0.0)])
    peek(optimizer, p)
    optimizer.param_groups[0]["lr"] = 0.05
    p.grad = vector(1.0, 1.0)
    optimizer.step()
    close(p, vector(-1 / 21, -1 / 20))
    close(optimizer.path(p), vector(1 / 21, 1 / 20))


@pytest.mark.parametrize("looking", [False, True], ids=["its own moves", "anybody's moves"])
def test_small_steps_count_beside_a_long_way(looking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """10^4 + 3e-4 is 10^4 in float32: without sums of their own, 2000 such steps would be lost."""
    monkeypatch.setattr("tmln.optim.tmln.STRETCH", 16)
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = TMLN([p], lr=1.0, damping=1.0)
    for gradient in (100.0, *[3e-4**0.5] * 2000):
        p.grad = torch.tensor([gradient])
        if looking:
            with torch.no_grad():
                p.zero_()
            optimizer.after_backward()
        optimizer.step()
        if looking:
            optimizer.after_update()
    assert float(optimizer.path(p)) - 1e4 == pytest.approx(0.6, rel=0.05)


def test_stretches_are_part_of_the_state() -> None:
    def train(optimizer: TMLN, p: torch.nn.Parameter, steps: int) -> None:
        for k in range(steps):
            p.grad = torch.full((2,), 0.1 * (k % 7))
            optimizer.step()

    whole, half, rest = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    one, first, second = TMLN([whole]), TMLN([half]), TMLN([rest])
    train(one, whole, 7 * 300)
    train(first, half, 7 * 140)
    with torch.no_grad():
        rest.copy_(half)
    second.load_state_dict(first.state_dict())
    train(second, rest, 7 * 160)
    assert torch.equal(whole, rest)
    assert torch.equal(one.path(whole), second.path(rest))
