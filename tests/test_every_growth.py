"""When the head grows, the state of every part follows: walked over the tables, a new part is tested by being listed.

What it has then must have the shapes that it would have had with the larger head from the beginning; what was there is
there to the bit, and what is new is zero, closed, or the new weights themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from tests.learner.test_growth import network, task
from tests.test_every_component import COMPONENTS, _quiet, kind  # noqa: F401  # a fixture
from tmln import testing
from tmln.learner import Learner
from tmln.methods import Penalty, Settings
from tmln.methods.penalties import PENALTIES

pytestmark = pytest.mark.usefixtures("narrow")

WITHIN, BETWEEN = "within a task", "between tasks"


@pytest.mark.parametrize("when", [WITHIN, BETWEEN])
@pytest.mark.parametrize(("family", "name"), COMPONENTS)
def test_what_has_a_shape_grows(family: str, name: str, when: str) -> None:
    testing.check_growth(kind(family, name), within_task=when == WITHIN)


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
    testing.check_growth(Declared)
    with pytest.raises(AssertionError, match="penalty forgetful: its state does not follow"):
        testing.check_growth(Forgetful)
