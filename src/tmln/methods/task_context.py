"""What components are given: the task being learned, and the batch of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Generator, Tensor, nn

from tmln.distributed.process_group import SINGLE, Ranks

if TYPE_CHECKING:
    from tmln.methods.replay.reservoir import Reservoir


@dataclass(frozen=True)
class TaskContext:
    """The task being learned, as components see it."""

    index: int  # 0 for the first task
    model: nn.Module  # with logit masking, the logits of closed classes are -inf
    classes: tuple[int, ...]  # of this task
    known: tuple[int, ...]  # of all earlier tasks
    effective_lr: float  # the step's learning rate in directions without curvature
    samples: Callable[[], Iterator[tuple[Tensor, Tensor]]]  # the task's stored samples, once and in order
    prepare: Callable[[Tensor], Tensor]  # stored samples -> model inputs, without augmentation
    eval_batch_size: int = 256  # samples that fit through the model
    ranks: Ranks = SINGLE  # the processes that learn it; each has the whole task and memory
    batches_in_pass: int | None = None  # of ``samples``, where that is known
    augment: Callable[[Tensor, Generator], Tensor] | None = None  # stored samples -> varied model inputs

    @cached_property
    def reference_weight(self) -> Tensor:
        """The model's :func:`get_reference_weight`, looked up once per task."""
        return get_reference_weight(self.model)

    def prepare_batch(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return stored samples as the model takes them at test time."""
        return prepare_inputs(self.model, x, self.prepare), move_to_model(self.model, y)

    def augment_batch(self, x: Tensor, y: Tensor, noise: Generator) -> tuple[Tensor, Tensor]:
        """Return stored samples as the model takes them in training."""
        if self.augment is None:
            return self.prepare_batch(x, y)
        augment = self.augment
        return prepare_inputs(self.model, x, lambda x: augment(x, noise)), move_to_model(self.model, y)

    def example_inputs(self) -> Tensor:
        """Return model inputs for two samples of the task."""
        x, y = next(iter(self.samples()))
        return self.prepare_batch(x[:2], y[:2])[0]

    def batches(self, memory: Reservoir | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Return the memory's samples or, without one, the task's, as model inputs."""
        return (self.prepare_batch(x, y) for x, y in self._iterate_stored(memory))

    def rank_batches(self, memory: Reservoir | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield this rank's share of :meth:`batches`, for sums that are taken over all ranks."""
        for x, y in self._iterate_stored(memory):
            rows = self.ranks.rows(len(y))
            yield self.prepare_batch(x[rows], y[rows])

    def _iterate_stored(self, memory: Reservoir | None) -> Iterator[tuple[Tensor, Tensor]]:
        return memory.batches(self.eval_batch_size, ("x", "y")) if memory else self.samples()


@dataclass(frozen=True)
class Batch:
    """A training batch.

    ``current`` samples of the task, then replayed ones, whose other fields are in ``fields``.
    """

    x: Tensor
    y: Tensor
    current: int
    fields: Mapping[str, Tensor] = field(default_factory=dict)

    def rank_share(self, ranks: Ranks) -> Batch:
        """Return this rank's samples, without other fields, for sums over all ranks."""
        rows = ranks.rows(len(self.y))
        x, y = self.x[rows], self.y[rows]
        return Batch(x, y, min(max(self.current - rows.start, 0), len(y)))


def get_reference_weight(model: nn.Module | Tensor) -> Tensor:
    """Return the weight whose device and dtype are the model's; a tensor is returned as it is."""
    return model if isinstance(model, Tensor) else next(model.parameters())


def move_to_model(model: nn.Module | Tensor, value: Tensor) -> Tensor:
    """Return the tensor on the device of the model or of its reference weight."""
    return value.to(get_reference_weight(model).device)


def prepare_inputs(model: nn.Module | Tensor, stored: Tensor, prepare: Callable[[Tensor], Tensor]) -> Tensor:
    """Return stored samples as model inputs: on its device, prepared, floats in its precision."""
    first = get_reference_weight(model)
    inputs, precision = prepare(move_to_model(first, stored)), first.dtype
    return inputs.to(precision) if inputs.is_floating_point() and precision.is_floating_point else inputs
