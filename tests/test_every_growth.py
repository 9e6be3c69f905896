"""When the head grows, the state of every part follows: walked over the tables, a new part is tested by being listed.

What it has then must have the shapes that it would have had with the larger head from the beginning; what was there is
there to the bit, and what is new is zero, closed, or the new weights themselves.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from tests.learner.test_growth import network, task, tensors
from tests.test_every_part import PARTS, _quiet, kind, recipe  # noqa: F401  # a fixture
from tmln.learner import Learner
from tmln.learner.heads import grow_head
from tmln.learner.loop import make_task_context, take_step
from tmln.methods import Penalty, Settings, TaskContext
from tmln.methods.penalties import PENALTIES
from tmln.streams import as_samples

pytestmark = pytest.mark.usefixtures("narrow")

WITHIN, BETWEEN = "within a task", "between tasks"


def trained(family: str, name: str, outputs: int, when: str) -> tuple[Learner, TaskContext]:
    """After a task, or some steps into the second, which has no other classes yet."""
    learner = Learner(
        network(outputs), recipe(family, name, dict(kind(family, name).active_settings)), lr=0.01, batch_size=10
    )
    learner.learn(task(0), epochs=2)
    x, y = task(0)
    context = make_task_context(learner, as_samples((x, y)), (0, 1), (0, 1))
    if when == WITHIN:
        learner.start((0, 1))
        for part in tuple(learner.components.values()):
            part.begin(context)
        for number in range(3):
            take_step(learner, x[:10], y[:10], context, 0, number)
    return learner, context


def check_growth(family: str, name: str, when: str) -> None:
    small, context = trained(family, name, 2, when)
    large = trained(family, name, 4, when)[0].components[family].state_dict()
    before = copy.deepcopy(small.components[family].state_dict())
    growth = grow_head(small, "3", 4)
    after = small.components[family].state_dict()
    expected, found = ({path: value.shape for path, value in tensors(state)} for state in (large, after))
    assert found == expected, f"{family} {name}: its state does not follow a head that grows"
    fresh = [new[2:] for new in growth.parameters.values()]
    for (path, old), (_, new) in zip(tensors(before), tensors(after), strict=True):
        assert old.dtype == new.dtype
        block = new[tuple(slice(size) for size in old.shape)]
        assert torch.equal(block, old), f"{family} {name}: {path} is not what it was"
        if new.shape != old.shape:
            rest = new.clone()
            rest[tuple(slice(size) for size in old.shape)] = 0
            came = new[2:] if len(new) == 4 else rest
            weights = any(came.shape == p.shape and torch.equal(came, p.detach()) for p in fresh)
            assert weights or not rest.isfinite().all() or not rest.any(), f"{family} {name}: {path} begins otherwise"
    x, y = task(1)
    for number in range(3):
        take_step(small, x[:10], y[:10], context, 0, number)
    assert small.model(x).isfinite().all()


@pytest.mark.parametrize("when", [WITHIN, BETWEEN])
@pytest.mark.parametrize(("family", "name"), PARTS)
def test_what_has_a_shape_grows(family: str, name: str, when: str) -> None:
    check_growth(family, name, when)


@pytest.mark.parametrize("inner", ["tmln", "ocar", "upgd"])
def test_what_is_wrapped_grows(inner: str) -> None:
    learner = Learner(network(2), "naive", step="sam", settings={"step.inner": inner}, lr=0.01, batch_size=10)
    learner.learn(task(0))
    head = learner.model[3].weight  # type: ignore[index]
    learner.learn(task(1))
    known = {id(p) for group in learner.step.optimizer.param_groups for p in group["params"]}
    assert known == {id(p) for p in learner.model.parameters()}
    assert id(head) not in known


class Forgetful(Penalty[Settings]):
    """Keeps a sum for each weight, under numbers that nobody knows the meaning of."""

    name = "forgetful"
    state_names = ("sums",)
    off_settings: Mapping[str, Any] | None = None  # type: ignore[misc]
    active_settings: Mapping[str, Any] = {}  # type: ignore[misc]

    def __init__(self, settings: Settings, model: nn.Module) -> None:
        super().__init__(settings, model)
        self.sums: Any = {i: torch.zeros_like(p) for i, p in enumerate(self.parameters)}


class Declared(Forgetful):
    """The same as a list along the parameters."""

    name = "declared"

    def __init__(self, settings: Settings, model: nn.Module) -> None:
        super().__init__(settings, model)
        self.sums = [torch.zeros_like(p) for p in self.parameters]


def test_a_part_that_does_not_follow_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in (Forgetful, Declared):
        monkeypatch.setitem(PENALTIES, part.name, part)
    check_growth("penalty", "declared", BETWEEN)
    with pytest.raises(AssertionError, match="penalty forgetful: its state does not follow"):
        check_growth("penalty", "forgetful", BETWEEN)
