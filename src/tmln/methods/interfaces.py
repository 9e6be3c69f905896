"""The questions that a method answers, one a family: what the loop asks of each, and when.

A step is given a closure, as torch.optim has it: each call passes the step's batch through the model at the weights as
they are, and leaves the gradient of the loss and of the penalty in ``.grad``. A step calls it at least once.

The first call is the step's gradient, taken where the weights are when the step begins. It alone counts: its loss is
logged, ``after_backward`` sees its gradient (running Fishers, path integrals), its outputs are what a memory may store,
and its pass moves running statistics. Every later call is the same function at other weights: the same augmented batch,
the same replayed samples, the same dropout. It leaves nothing behind but ``.grad``: statistics and random numbers
are put back. So whatever a step asks, all that is counted is counted once, of the task's gradient at the weights before
the step, and of the displacement that happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from tmln.methods.component import BuildContext, Component, S
from tmln.methods.growth import Growth
from tmln.methods.task_context import Batch, TaskContext
from tmln.methods.weight_copies import moving

if TYPE_CHECKING:
    from typing_extensions import Self

    from tmln.methods.replay.reservoir import Reservoir

Closure = Callable[[], float]


class Replay(Component[S]):
    """What joins the batch, and how is it scored?"""

    family = "replay"
    memory: Reservoir | None = None

    def __init__(self, settings: S, seed: int) -> None:
        self.settings = settings

    @classmethod
    def make(cls, settings: Any, given: BuildContext) -> Self:
        return cls(settings, given.seed)

    def draw(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
        """Samples as stored, to be put behind the current ones: inputs, labels, further fields. Once a step."""
        return x[:0], y[:0], {}

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of the union, and the model's output for it (-inf for closed classes). Once a call of the closure:
        it changes nothing."""
        output = model(batch.x)
        return nn.functional.cross_entropy(output, batch.y), output

    def after_step(self, x: Tensor, y: Tensor, output: Tensor, epoch: int) -> None:
        """The current samples as stored, and what the model said of them before the step."""


class Penalty(Component[S]):
    """What is added to the loss?"""

    family = "penalty"
    off: ClassVar[Mapping[str, Any] | None] = {"strength": 0.0}
    active: ClassVar[Mapping[str, Any]] = {"strength": 1.0}
    turned: ClassVar[Mapping[str, Any]] = {"strength": 50.0}
    modifies_gradient = True

    def __init__(self, settings: S, model: nn.Module) -> None:
        self.settings = settings
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]

    @classmethod
    def make(cls, settings: Any, given: BuildContext) -> Self:
        return cls(settings, given.model)

    @property
    def device(self) -> torch.device | None:
        return self.parameters[0].device if self.parameters else None

    @property
    def aligned(self) -> list[Tensor]:
        return self.parameters

    def set_rate(self, rate: float) -> None:
        """The step's rate in flat directions from now on, where a schedule changes it within a task."""

    def loss(self, model: nn.Module, batch: Batch, output: Tensor) -> Tensor | None:
        """A term that needs the graph; None where ``add`` does it. Once a call of the closure: it changes nothing."""
        return None

    def after_backward(self) -> None:
        """The task's gradient (with that of ``loss``, if there is one) is in ``.grad``, at the weights before the step.
        Once a step: what is counted is counted here."""

    def add_gradient(self) -> None:
        """Add the penalty's own gradient to ``.grad``. Once a call of the closure: it changes nothing else."""

    def after_step(self) -> None:
        """The parameters have moved."""


class Step(Component[S]):
    """How does a gradient become a move?"""

    family = "step"
    optimizer: torch.optim.Optimizer
    tracks_path: bool = False  # integrates the task's gradient along the path of the weights

    def __init__(self, settings: S, model: nn.Module, lr: float, seed: int, memory: Reservoir | None = None) -> None:
        self.settings = settings
        self.memory = memory  # the replay part's, if it has one

    @classmethod
    def make(cls, settings: Any, given: BuildContext) -> Self:
        return cls(settings, given.model, given.lr, given.seed, getattr(given.parts["replay"], "memory", None))

    @property
    def rate(self) -> float:
        """The learning rate in directions without curvature."""
        return float(self.optimizer.param_groups[0]["lr"])

    def grow(self, growth: Growth) -> None:
        growth.optimizer(self.optimizer)
        super().grow(growth)

    def before_forward(self, batch: Batch, context: TaskContext) -> None:
        """The batch is there, the model has not seen it."""

    def after_backward(self) -> None:
        """The task's gradient is in ``.grad``, at the weights before the step, and others will bend it or move the
        weights besides. Once a step, from within the closure's first call."""

    def step(self, closure: Closure, context: TaskContext) -> None:
        """Ask for the gradient, once or more often, and move the weights along it."""
        self.optimizer.step(closure)

    def after_update(self) -> None:
        """After ``after_backward`` and ``step``: all that moves the weights in this step has done so."""


class Weights(Component[S]):
    """Which weights answer, and go on?

    Its ``end`` comes before all others': memory, scores and F are of the weights that it leaves.
    """

    family = "weights"

    def __init__(self, settings: S, given: BuildContext) -> None:
        self.settings, self.model = settings, given.model

    @classmethod
    def make(cls, settings: Any, given: BuildContext) -> Self:
        return cls(settings, given)

    @property
    def device(self) -> torch.device | None:
        return next((p.device for p in self.model.parameters()), None)

    @property
    def named(self) -> Mapping[str, Tensor]:
        return moving(self.model)

    def after_step(self) -> None:
        """The parameters have moved, and all that counts the move has done so."""

    def prediction_weights(self) -> AbstractContextManager[None]:
        """Within it the model has the weights that answer; on leaving, its own again."""
        return nullcontext()


class Answer(Component[S]):
    """How does an output become a class?

    No other part sees it: training, Fishers and penalties are of the plain output. Its ``end`` comes after all others',
    with the weights that answer in the model.
    """

    family = "answer"
    prediction_only = True

    def __init__(self, settings: S, given: BuildContext) -> None:
        self.settings, self.model = settings, given.model

    @classmethod
    def make(cls, settings: Any, given: BuildContext) -> Self:
        return cls(settings, given)

    @property
    def device(self) -> torch.device | None:
        return next((p.device for p in self.model.parameters()), None)

    def scores(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """The model's output, by which losses are, and the scores of which the largest open one is the class.

        Without gradients, in eval mode, with the weights that answer in the model.
        """
        output = model(x)
        return output, output
