"""The pre-training as a task: F of the features before the first step, by hand, and what it holds back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln import Learner
from tmln.curvature import diagonal_fisher
from tmln.methods.fine_tuning import FineTuning, set_fine_tuning

X = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0], [1.0, 1.0]])
Y = torch.tensor([0, 1, 0, 1])
ON: dict[str, Any] = {"step.consolidate_at_start": True}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 2))


@pytest.mark.parametrize("mask", ["none", "seen"])
@pytest.mark.parametrize("named", [False, True])
def test_by_hand(mask: Any, named: bool) -> None:
    """One feature w x with df/dw = x: F = mean r^2 x^2. The head has F = 0; step 1 is -eta g / (F + lambda)."""
    model = network()
    if named:
        set_fine_tuning(model, FineTuning("1", frozen_norms=True))
    expected = copy.deepcopy(model)
    learner = Learner(model, "tmln", settings={**ON, "step.damping": 0.5}, lr=0.1, batch_size=4, logit_mask=mask)
    r = torch.randn(4, 1, generator=torch.Generator().manual_seed(0))
    fisher = (r.square() * X.square()).mean(0)
    seen: list[Tensor] = []

    def look(epoch: int, number: int, loss: float) -> None:
        seen.append(learner.step.optimizer.state[model[0].weight]["fisher"].clone())  # type: ignore[index]

    zero = torch.tensor(0.0)
    nn.functional.cross_entropy(expected(X), Y).backward()
    learner.learn((X, Y), on_step=look)
    torch.testing.assert_close(seen[0], fisher.view(1, 2))
    for p, q, held in zip(expected.parameters(), model.parameters(), (fisher.view(1, 2), zero, zero), strict=True):
        assert p.grad is not None
        torch.testing.assert_close(q, p - 0.1 * p.grad / (held + 0.5))


def test_it_is_added_at_every_boundary() -> None:
    """F after a task is that of its memory (here: of the task) at the new weights, and that of the start."""
    model = network()
    learner = Learner(model, "tmln", settings=ON, replay="none", lr=0.1, batch_size=4)
    learner.learn((X, Y), epochs=2)
    learner.learn((X, Y + 2), epochs=2)  # the head grows
    r = torch.randn(4, 1, generator=torch.Generator().manual_seed(0))
    start = (r.square() * X.square()).mean(0)
    now = diagonal_fisher(model, [(X, Y + 2)])
    state = learner.step.optimizer.state
    held = {name: state[p]["fisher"] for name, p in model.named_parameters()}
    torch.testing.assert_close(held["0.weight"], now["0.weight"] + start)
    torch.testing.assert_close(held["1.weight"], now["1.weight"])


def test_it_counts_as_a_task_in_the_first_score() -> None:
    """With F at the start the score is relu(omega) / (F d^2 / 2 + eps); without, omega / eps."""
    found = []
    for settings in ({}, ON):
        learner = Learner(network(), "tmln", settings=settings, lr=0.1, batch_size=4)
        learner.learn((X, Y), epochs=3)
        found.append(torch.cat([s["sensitivity"].flatten() for s in learner.step.optimizer.state.values()]))
    assert not torch.allclose(found[0], found[1])


def distance(settings: dict[str, Any]) -> float:
    """How far the features of general inputs move while a task is learned."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    general = torch.randn(100, 6)
    before = model[:2](general).detach()
    learner = Learner(model, "tmln", settings=settings, lr=0.02, batch_size=8)
    x = torch.randn(64, 6)
    learner.learn((x, (x[:, 0] > 0).long()), epochs=10)
    assert learner.evaluate((x, (x[:, 0] > 0).long()))["accuracy"] > 0.9
    return float((model[:2](general).detach() - before).square().mean())


def test_features_are_held() -> None:
    assert distance(ON) < 0.5 * distance({})


def test_a_state_taken_in_the_first_task_goes_on() -> None:
    def make() -> Learner:
        return Learner(network(), "tmln", settings=ON, lr=0.1, batch_size=2)

    whole, part, again, saved = make(), make(), make(), {}
    for y in (Y, Y + 2):
        whole.learn((X, y), epochs=2)

    def stop(epoch: int, number: int, loss: float) -> None:
        saved.update(copy.deepcopy(part.state_dict()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        part.learn((X, Y), epochs=2, atomic=False, on_step=stop)
    again.load_state_dict(saved)
    for y in (Y, Y + 2):
        again.learn((X, y), epochs=2)
    for a, b in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_where_the_backbone_is_frozen_there_is_nothing_to_hold() -> None:
    model = network()
    set_fine_tuning(model, FineTuning("1", freeze="backbone"))
    learner = Learner(model, "tmln", settings=ON, lr=0.1, batch_size=4)
    learner.learn((X, Y), epochs=2)
    assert learner.tasks == 1


@pytest.mark.parametrize("geometry", ["euclidean", "kfac"])
def test_geometries_without_f_are_refused(geometry: str) -> None:
    with pytest.raises(ValueError, match="set consolidate_at_start to false"):
        Learner(network(), "tmln", settings={**ON, "step.geometry": geometry})
