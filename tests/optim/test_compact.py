"""State in 12 bytes a weight: F and S-bar in bfloat16, P computed anew; how far it is from 20 bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.optim.test_offload import consolidate, learned
from tests.optim.test_tmln import batch, small, train, weights
from tmln.curvature import diagonal_fisher
from tmln.learner import Learner
from tmln.methods import copy_state
from tmln.optim import TMLN
from tmln.optim.update import current_preconditioner

ROUNDING = 2**-8  # of bfloat16, which has 8 significant bits
OPTIONS: list[dict[str, Any]] = [
    {}, {"momentum": 0.9}, {"base": "adam"}, {"geometry": "euclidean"}, {"form": "proximal"}, {"offload": True},
]  # fmt: skip


def bytes_of(optimizer: TMLN) -> int:
    return sum(v.numel() * v.element_size() for state in optimizer.state.values() for v in state.values())


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_twelve_bytes_a_weight() -> None:
    model, optimizer = learned(compact=True)
    assert bytes_of(optimizer) == 12 * count(model)
    assert bytes_of(learned()[1]) == 20 * count(model)
    state = optimizer.state[next(model.parameters())]
    assert {key: value.dtype for key, value in state.items()} == {
        "anchor": torch.float32,
        "fisher": torch.bfloat16,
        "sensitivity": torch.bfloat16,
        "raw_path": torch.float32,
    }


def test_a_step_by_hand() -> None:
    """F = 1/3 is 0.333984375 in bfloat16: theta <- 1 - 0.5 * 2 / (0.333984375 + 0.1)."""
    p = nn.Parameter(torch.ones(1))
    optimizer = TMLN([p], lr=0.5, damping=0.1, trajectory=0.0, compact=True)
    p.grad = torch.zeros(1)
    optimizer.step()
    optimizer.consolidate([torch.full((1,), 1 / 3)])
    p.grad = torch.full((1,), 2.0)
    optimizer.step()
    assert p.item() == pytest.approx(1 - 1 / 0.433984375, rel=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 100.0])
def test_the_preconditioner_is_within_one_rounding(gamma: float) -> None:
    torch.manual_seed(0)
    p, q = (nn.Parameter(torch.ones(1000)) for _ in range(2))
    fisher, path = torch.rand(1000) ** 4, torch.rand(1000)
    found = []
    for weight, compact in ((p, False), (q, True)):
        optimizer = TMLN([weight], damping=1e-3, trajectory=gamma, compact=compact)
        weight.grad = path.clone()
        optimizer.step()
        optimizer.consolidate([fisher])
        found.append(current_preconditioner(optimizer.state[weight], optimizer.param_groups[0]))
    error = (found[1] / found[0] - 1).abs().max()
    assert 0 < error <= 1.01 * ROUNDING


def test_the_first_task_is_the_same_to_the_bit() -> None:
    """F = S-bar = 0 need no digits."""
    ends = []
    for compact in (False, True):
        model = small()
        train(model, TMLN(model.parameters(), compact=compact), 0, 8)
        ends.append(weights(model))
    assert torch.equal(*ends)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_three_tasks_end_close_to_those_with_all_digits(options: dict[str, Any]) -> None:
    (compact, optimizer), (full, plain) = learned(compact=True, **options), learned(**options)
    begin = weights(small())
    moved = (weights(full) - begin).norm()
    assert 0 < (weights(compact) - weights(full)).norm() < 0.01 * moved
    for mine, other in zip(optimizer.protection()[:2], plain.protection()[:2], strict=True):
        assert mine == pytest.approx(other, rel=0.02)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_state_goes_on_to_the_bit(options: dict[str, Any]) -> None:
    model, optimizer = learned(compact=True, **options)
    copied = small(seed=1)
    copied.load_state_dict(model.state_dict())
    second = TMLN(copied.parameters(), compact=True, **options)
    second.load_state_dict(copy_state(optimizer.state_dict()))
    for trained, steps in ((model, optimizer), (copied, second)):
        train(trained, steps, 30, 33)
        consolidate(trained, steps)
        train(trained, steps, 33, 35)
    assert torch.equal(weights(model), weights(copied))
    saved, again = optimizer.state_dict()["state"], second.state_dict()["state"]
    assert all(torch.equal(saved[i][key], again[i][key]) for i in saved for key in saved[i])


@pytest.mark.parametrize("compact", [False, True])
def test_states_of_the_other_kind_load(compact: bool) -> None:
    """Those of before the option, which do not name it, too."""
    model, optimizer = learned(compact=not compact)
    state = copy_state(optimizer.state_dict())
    if compact:
        for group in state["param_groups"]:
            del group["compact"]
    second = TMLN(model.parameters(), compact=compact)
    second.load_state_dict(state)
    assert second.param_groups[0]["compact"] is compact
    train(model, second, 30, 33)
    consolidate(model, second)
    kept = {state["fisher"].dtype for state in second.state.values()}
    assert kept == {torch.bfloat16 if compact else torch.float32}


def test_doubles_keep_single_precision_and_halves_two_bytes() -> None:
    for dtype, metric in ((torch.float64, torch.float32), (torch.bfloat16, torch.bfloat16)):
        model = small().to(dtype)
        optimizer = TMLN(model.parameters(), compact=True)
        x, y = batch(0)
        nn.functional.cross_entropy(model(x.to(dtype)).float(), y).backward()
        optimizer.step()
        optimizer.consolidate(diagonal_fisher(model, [(x.to(dtype), y)]))
        assert {state["fisher"].dtype for state in optimizer.state.values()} == {metric}


def test_a_head_that_grows_and_a_compiled_step() -> None:
    model, optimizer = learned(compact=True)
    old = list(model.parameters())[-1]
    new = nn.Parameter(torch.cat([old.detach(), torch.zeros(2)]))
    optimizer.replace(old, new)
    assert optimizer.state[new]["fisher"].dtype == torch.bfloat16
    new.grad = torch.ones_like(new)
    optimizer.step()


def test_a_learner_resumes_with_it(tmp_path: Any) -> None:
    def made() -> Learner:
        torch.manual_seed(0)
        return Learner(nn.Linear(4, 2), "tmln", settings={"step.compact": True}, batch_size=8)

    tasks = [(torch.randn(24, 4), torch.randint(2, (24,))) for _ in range(3)]
    whole = made()
    for task in tasks:
        whole.learn(task)
    part = made()
    for task in tasks[:2]:
        part.learn(task)
    part.save(tmp_path / "a.tmln")
    part = Learner.load(tmp_path / "a.tmln", nn.Linear(4, 2))
    part.learn(tasks[2])
    assert torch.equal(weights(whole.model), weights(part.model))
    assert part.step.optimizer.state[next(part.model.parameters())]["fisher"].dtype == torch.bfloat16
