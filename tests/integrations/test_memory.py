"""What is carried from task to task, without a framework."""

from __future__ import annotations

import copy
from typing import Any

import lightning.fabric
import pytest
import torch
from accelerate import Accelerator
from torch import nn

import tmln
from tmln.integrations.memory import TaskMemory, unwrapped


def walked(model: nn.Module, **options: Any) -> tmln.TMLN:
    optimizer = tmln.TMLN(model.parameters(), **options)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return optimizer


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_wrappers_come_off() -> None:
    model = nn.Linear(2, 2)
    optimizer = tmln.TMLN(model.parameters())
    assert unwrapped(optimizer) is optimizer
    assert unwrapped(Accelerator(cpu=True).prepare(optimizer)) is optimizer
    _, theirs = lightning.fabric.Fabric(accelerator="cpu", devices=1).setup(model, optimizer)
    assert unwrapped(theirs) is optimizer


def test_the_shield_goes_over_and_the_options_stay() -> None:
    torch.manual_seed(0)
    model, keeper = nn.Linear(2, 2), TaskMemory(tmln.Reservoir(4))
    keeper.offer((torch.randn(4, 2), torch.tensor([0, 1, 0, 1])))
    assert len(keeper.memory) == 0  # a task replays those before it
    old = walked(model, lr=0.1, damping=0.5)
    keeper.boundary(model, old)
    keeper.note(old, model)
    assert len(keeper.memory) == 4
    new = tmln.TMLN(model.parameters(), lr=0.3, damping=0.2)
    keeper.hand_over(new, "this", model)
    for p in model.parameters():
        for key in ("fisher", "sensitivity", "anchor"):
            assert torch.equal(new.state[p][key], old.state[p][key])
    assert (new.param_groups[0]["lr"], new.param_groups[0]["damping"]) == (0.3, 0.2)
    before, weight = model.weight.detach().clone(), model.weight
    model.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    new.step()
    expected = before - 0.3 / (old.state[weight]["fisher"] + 0.2 + old.state[weight]["sensitivity"])
    torch.testing.assert_close(weight.detach(), expected)


def consolidated() -> tuple[nn.Linear, TaskMemory]:
    torch.manual_seed(0)
    model, keeper = nn.Linear(2, 2), TaskMemory(tmln.Reservoir(4))
    old = walked(model, geometry="euclidean")
    keeper.boundary(model, old)
    keeper.note(old, model)
    return model, keeper


def test_the_shield_goes_to_the_same_parameters_only() -> None:
    model, keeper = consolidated()
    with torch.no_grad():
        model.weight.zero_()  # moved by something else: still the same parameter
    keeper.hand_over(tmln.TMLN(model.parameters(), geometry="euclidean"), "this", model)
    other = tmln.TMLN(nn.Linear(2, 2).parameters(), geometry="euclidean")
    with pytest.raises(ValueError, match=r"consolidated 'weight', and is now given ''.*Continual\(memory="):
        keeper.hand_over(other, "this", model)
    assert not any(other.state.values())


@pytest.mark.parametrize(("change", "is_same"), [(0.0, True), (0.01, True), (1.0, False)])
def test_a_copy_is_the_same_by_name_and_weights(change: float, is_same: bool) -> None:
    model, keeper = consolidated()
    twin, loaded = copy.deepcopy(model), TaskMemory(tmln.Reservoir(4))
    loaded.load_state_dict(keeper.state_dict())
    loaded.optimizer_state = keeper.optimizer_state
    with torch.no_grad():
        twin.weight.mul_(1 + change)
    for one in (loaded, copy.deepcopy(keeper)):
        optimizer = tmln.TMLN(twin.parameters(), geometry="euclidean")
        if is_same:
            one.hand_over(optimizer, "this", twin)
            assert any(optimizer.state.values())
        else:
            with pytest.raises(ValueError, match="another one of that name"):
                one.hand_over(optimizer, "this", twin)


def test_an_optimizer_that_has_a_state_is_left_alone() -> None:
    model, keeper = nn.Linear(2, 2), TaskMemory(tmln.Reservoir(4))
    optimizer = walked(model, geometry="euclidean")
    keeper.boundary(model, optimizer)  # no Fisher, and so no samples are needed
    keeper.note(optimizer, model)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    path = optimizer.path(model.weight)
    keeper.hand_over(optimizer, "this", model)
    assert float(path.abs().max()) > 0
    assert torch.equal(optimizer.path(model.weight), path)
