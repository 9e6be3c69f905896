"""Steps that train nothing, or the first task only: for answers that are functions of features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tmln.methods import Closure, Guide, MemoryConditions, MemoryTerm, Settings, Step, TaskContext
from tmln.methods.steps.wrapping import Wrapping, WrappingSettings


class FrozenStep(Step[Settings]):
    """No weight is updated; one pass over each task's samples, at its end, is all there is."""

    name = "frozen"
    guide = Guide(
        equation=r"\theta \leftarrow \theta",
        origin="",
        cost="No backward pass and no epochs.",
        use="On a pre-trained backbone with the answers `stream-ncm`, `slda`, `ranpac`.",
        avoid="With random weights, and with any other answer: nothing is learned.",
    )

    @classmethod
    def trains_at(cls, settings: Any, index: int) -> bool:
        """Return False."""
        return False

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        """Return nothing: no state is held."""
        return []

    def step(self, closure: Closure, context: TaskContext) -> None:
        """Compute the loss, for callers of a step by hand; no weight is updated."""
        closure()


class FirstSessionStep(Wrapping[WrappingSettings]):
    """The inner step trains the first task; after it no weight is updated."""

    name = "first-session"
    Settings = WrappingSettings
    needs_boundary = True  # the end of the first task is to be known
    guide = Guide(
        equation=r"\theta \leftarrow \text{inner step in task 1}, \quad \theta \leftarrow \theta \text{ after it}",
        origin="APER: Zhou et al. 2024; phase 1 of RanPAC: McDonnell et al. 2023.",
        cost="The training of one task.",
        use="Around any step, on a pre-trained backbone, where the first task is typical of what comes.",
        avoid="Where the first task is small: a backbone that is adapted to it loses more than it gains.",
    )

    @classmethod
    def trains_at(cls, settings: Any, index: int) -> bool:
        """Return whether it is the first task."""
        return index == 0

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        """Return what the inner step holds in a task without steps."""
        return super().memory_terms(settings, replace(conditions, trains=False))

    def step(self, closure: Closure, context: TaskContext) -> None:
        """Let the inner step train the first task; later, update nothing."""
        if context.index == 0:
            self.inner.step(closure, context)
        else:
            closure()

    def end(self, context: TaskContext) -> None:
        """End the inner step's first task; nothing that it might measure later is used."""
        if context.index == 0:
            super().end(context)
