"""What parts are told: the task being learned, and the batch of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor, nn

from tmln.distributed.process_group import SINGLE, Ranks

if TYPE_CHECKING:
    from tmln.methods.replay.reservoir import Reservoir


@dataclass(frozen=True)
class TaskContext:
    """What a part is told about the task being learned, at its beginning, at its steps and at its end."""

    index: int  # 0 for the first task
    model: nn.Module  # as it is scored: where classes are closed, their logits are -inf
    classes: tuple[int, ...]  # of this task
    known: tuple[int, ...]  # of all earlier tasks
    rate: float  # the step's rate in flat directions, for stability checks
    samples: Callable[[], Iterator[tuple[Tensor, Tensor]]]  # the task once, in order, as stored
    prepare: Callable[[Tensor], Tensor]  # stored samples -> model inputs, not augmented
    at_a_time: int = 256  # samples that fit through the model
    ranks: Ranks = SINGLE  # who learns it together: all of them have the task, the memory and the weights whole

    @cached_property
    def home(self) -> Tensor:
        """The model's :func:`home`, found once a task: the head has grown by then."""
        return home(self.model)

    def ready(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Stored samples as the model takes them at test time."""
        return feed(self.model, x, self.prepare), to_model(self.model, y)

    def two_inputs(self) -> Tensor:
        """Two samples of the task as the model takes them, to look at what it does with them."""
        x, y = next(iter(self.samples()))
        return self.ready(x[:2], y[:2])[0]

    def batches(self, memory: Reservoir | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """The memory's samples or, without one, the task's training data, as the model takes them at test time."""
        return (self.ready(x, y) for x, y in self._stored(memory))

    def dealt(self, memory: Reservoir | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's share of :meth:`batches`, for a pass whose sums are taken over all ranks."""
        for x, y in self._stored(memory):
            rows = self.ranks.rows(len(y))
            yield self.ready(x[rows], y[rows])

    def _stored(self, memory: Reservoir | None) -> Iterator[tuple[Tensor, Tensor]]:
        return memory.batches(self.at_a_time, ("x", "y")) if memory else self.samples()


@dataclass(frozen=True)
class Batch:
    """A training batch: ``current`` samples of the task, then replayed ones, whose further fields are in ``fields``."""

    x: Tensor
    y: Tensor
    current: int
    fields: Mapping[str, Tensor] = field(default_factory=dict)

    def dealt(self, ranks: Ranks) -> Batch:
        """This rank's samples of it, without further fields, for a pass whose sums are taken over all ranks."""
        rows = ranks.rows(len(self.y))
        x, y = self.x[rows], self.y[rows]
        return Batch(x, y, min(max(self.current - rows.start, 0), len(y)))


def home(model: nn.Module | Tensor) -> Tensor:
    """The weight that tells where the model is, and in which precision; what was found so before is itself."""
    return model if isinstance(model, Tensor) else next(model.parameters())


def to_model(model: nn.Module | Tensor, value: Tensor) -> Tensor:
    """The tensor where the model, or its :func:`home`, is. Every move between devices goes through here."""
    return value.to(home(model).device)


def feed(model: nn.Module | Tensor, stored: Tensor, prepare: Callable[[Tensor], Tensor]) -> Tensor:
    """Stored samples as the model takes them: on its device, prepared, floats in its precision."""
    first = home(model)
    inputs, precision = prepare(to_model(first, stored)), first.dtype
    return inputs.to(precision) if inputs.is_floating_point() and precision.is_floating_point else inputs
