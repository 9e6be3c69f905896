"""The public checks of components: each notices what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from tests.toys import LastReplay, LastSettings, LeashPenalty, ShyAnswer, SignStep, StartWeights
from tmln.methods import TaskContext
from tmln.testing import check_component


@pytest.mark.parametrize("component", [LastReplay, LeashPenalty, SignStep, StartWeights, ShyAnswer])
def test_sound_components_pass(component: Any) -> None:
    check_component(component)


class VagueSettings(LastSettings):
    keep: int = 8


class Vague(LastReplay):
    """A setting without a description."""

    Settings = VagueSettings


class Amnesiac(SignStep):
    """Its mean of gradients is in no checkpoint."""

    state_names: ClassVar[tuple[str, ...]] = ()


class Stiff(SignStep):
    """Its mean does not grow."""

    @property
    def state_parameters(self) -> list[Tensor]:
        return []


class Idle(LastReplay):
    """Draws nothing."""

    def draw(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
        return x[:0], y[:0], {}


class Never(LastReplay):
    """Has an effect where it is switched off."""

    off_settings: ClassVar[Mapping[str, Any] | None] = {"keep": 4}


class Random(LeashPenalty):
    """Draws from torch's own generator."""

    def end(self, context: TaskContext) -> None:
        torch.rand(1)
        super().end(context)


class Meddling(ShyAnswer):
    """An answer that trains."""

    def end(self, context: TaskContext) -> None:
        super().end(context)
        with torch.no_grad():
            for p in context.model.parameters():
                p.mul_(0.9)


class Wild(LastReplay):
    """Keeps what cannot be saved."""

    state_names: ClassVar[tuple[str, ...]] = ("last", "odd")
    odd: Any = frozenset()


@pytest.mark.parametrize(
    ("component", "words"),
    [
        (Vague, "replay toy-replay: keep has no description"),
        (Amnesiac, "step toy-step: a resumed run has other weights: name all state in state_names"),
        (Stiff, "step toy-step: its state does not follow a head that grows"),
        (Idle, "replay toy-replay has no effect on the second task"),
        (Never, "replay toy-replay has an effect at its off_settings"),
        (Random, "penalty toy-penalty draws from torch's global random numbers"),
        (Meddling, "answer toy-answer changes weights"),
        (Wild, "replay toy-replay: its state holds a frozenset"),
    ],
)
def test_every_fault_is_named(component: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_component(component)


def test_what_is_no_component_is_named() -> None:
    with pytest.raises(ValueError, match="int is no component"):
        check_component(int)  # type: ignore[arg-type]
