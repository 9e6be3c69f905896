"""The interfaces of the five families: what the training loop asks of each component, and when.

A step is given a closure, as in torch.optim: each call passes the step's batch through the model at
the current weights and leaves the gradient of loss and penalty in ``.grad``. A step calls it at
least once.

The first call is the step's gradient, at the weights before the step. Only this call counts: its
loss is logged, ``after_backward`` sees its gradient (running Fishers, path integrals), its outputs
may be stored in a memory, and its pass updates running statistics. A later call evaluates the same
function at other weights: the same augmented batch, the same replayed samples, the same dropout. It
changes nothing but ``.grad``; statistics and random state are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from tmln.methods.component import BuildContext, Component, Growth, S
from tmln.methods.fine_tuning import scale_backbone_lr
from tmln.methods.task_context import Batch, TaskContext
from tmln.methods.weight_copies import trained_tensors

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
    def make(cls, settings: Any, context: BuildContext) -> Self:
        return cls(settings, context.seed)

    def draw(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
        """Return stored samples to append to the current ones: inputs, labels, other fields.

        Called once a step.
        """
        return x[:0], y[:0], {}

    def select(self, batch: Batch, context: TaskContext) -> Batch:
        """Return the samples to train on, of all current and drawn ones; current ones come first.

        Called once a step, after augmentation.
        """
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss of the batch and the model's output (-inf for closed classes).

        Called at each call of the closure; it must not change state.
        """
        output = model(batch.x)
        return nn.functional.cross_entropy(output, batch.y), output

    def after_step(self, x: Tensor, y: Tensor, output: Tensor, epoch: int) -> None:
        """Process the current stored samples, and the model's output for them before the step."""


def choose_heads(model: nn.Module, y: Tensor) -> AbstractContextManager[None]:
    """Choose heads by labels within the block, for passes of the samples that have these labels.

    It does nothing where the model has one head (:class:`tmln.learner.forward.TaskHeads`).
    """
    for_labels = getattr(model, "for_labels", None)
    found: AbstractContextManager[None] = nullcontext() if for_labels is None else for_labels(y)
    return found


class Penalty(Component[S]):
    """What is added to the loss?"""

    family = "penalty"
    off_settings: ClassVar[Mapping[str, Any] | None] = {"strength": 0.0}
    active_settings: ClassVar[Mapping[str, Any]] = {"strength": 1.0}
    changed_settings: ClassVar[Mapping[str, Any]] = {"strength": 50.0}
    modifies_gradient = True

    def __init__(self, settings: S, model: nn.Module) -> None:
        self.settings = settings
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]

    @classmethod
    def make(cls, settings: Any, context: BuildContext) -> Self:
        return cls(settings, context.model)

    @property
    def device(self) -> torch.device | None:
        return self.parameters[0].device if self.parameters else None

    @property
    def state_parameters(self) -> list[Tensor]:
        return self.parameters

    def set_effective_lr(self, effective_lr: float) -> None:
        """Set the step's effective learning rate, which a schedule changes within a task."""

    def loss(self, model: nn.Module, batch: Batch, output: Tensor) -> Tensor | None:
        """Return a term of the loss, or None where :meth:`add_gradient` adds its gradient.

        Called at each call of the closure; it must not change state.
        """
        return None

    def after_backward(self) -> None:
        """Process the task's gradient (with that of :meth:`loss`) in ``.grad``, before the step.

        Called once a step.
        """

    def add_gradient(self) -> None:
        """Add the penalty's gradient to ``.grad``.

        Called at each call of the closure; it must not change state.
        """

    def after_step(self) -> None:
        """Process the new parameters."""


class Step(Component[S]):
    """How does a gradient become an update?"""

    family = "step"
    optimizer: torch.optim.Optimizer
    tracks_path: bool = False  # integrates the task's gradient along the path of the weights

    def __init__(self, settings: S, model: nn.Module, lr: float, seed: int, memory: Reservoir | None = None) -> None:
        self.settings, self.memory = settings, memory  # of the replay component, if it has one
        self.optimizer = self.make_optimizer(model, lr, seed)
        scale_backbone_lr(self.optimizer, model)

    @classmethod
    def make(cls, settings: Any, context: BuildContext) -> Self:
        memory = getattr(context.components["replay"], "memory", None)
        return cls(settings, context.model, context.lr, context.seed, memory)

    def make_optimizer(self, model: nn.Module, lr: float, seed: int) -> torch.optim.Optimizer:
        """Return the optimizer that :meth:`step` uses; plain SGD unless overridden."""
        return torch.optim.SGD(model.parameters(), lr)

    @classmethod
    def trains_at(cls, settings: Any, index: int) -> bool:
        """Return whether it updates weights in the task ``index``; if not, no step is taken."""
        return True

    @classmethod
    def lr_factor(cls, settings: Any) -> float:
        """Return the effective learning rate at ``lr=1``, at the start, without curvature.

        With momentum it is that of a steady gradient, 1 / (1 - momentum).
        """
        return 1.0 / (1.0 - float(getattr(settings, "momentum", 0.0)))

    @property
    def effective_lr(self) -> float:
        """The learning rate of one step in directions without curvature, without momentum."""
        return float(self.optimizer.param_groups[0]["lr"])

    def grow(self, growth: Growth) -> None:
        growth.update_optimizer(self.optimizer)
        super().grow(growth)

    def before_forward(self, batch: Batch, context: TaskContext) -> None:
        """Process the batch before the model's forward pass."""

    def after_backward(self) -> None:
        """Process the task's gradient in ``.grad``, before the step.

        Called once a step, in the closure's first call, and only where other components change the
        gradient or move the weights.
        """

    def step(self, closure: Closure, context: TaskContext) -> None:
        """Call the closure once or more often, and update the weights."""
        self.optimizer.step(closure)

    def after_update(self) -> None:
        """Process the new weights, after everything that moves them."""


class ModelComponent(Component[S]):
    """A component that is built from the model and reads it again and again."""

    def __init__(self, settings: S, context: BuildContext) -> None:
        self.settings, self.model = settings, context.model

    @classmethod
    def make(cls, settings: Any, context: BuildContext) -> Self:
        return cls(settings, context)

    @property
    def device(self) -> torch.device | None:
        return next((p.device for p in self.model.parameters()), None)


class Weights(ModelComponent[S]):
    """Which weights predict, and start the next task?

    Its ``end`` comes before all others': memory, scores and F are of the weights that it leaves.
    """

    family = "weights"

    @property
    def named_tensors(self) -> Mapping[str, Tensor]:
        return trained_tensors(self.model)

    def after_step(self) -> None:
        """Process the new weights, after all components that measure the update."""

    def prediction_weights(self) -> AbstractContextManager[None]:
        """Return a context within which the model has the weights that predict."""
        return nullcontext()


class Answer(ModelComponent[S]):
    """How do features or logits become a prediction?

    It has no effect on training, Fishers and penalties. Its ``end`` comes after all others', with
    the weights that predict in the model.
    """

    family = "answer"
    is_prediction_only = True

    def scores(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the model's output, for losses, and the scores whose largest open entry predicts.

        Called without gradients, in eval mode, with the weights that predict in the model.
        """
        output = model(x)
        return output, output

    def prepare(self) -> None:
        """Compute now what the next prediction would compute first; called before a save."""

    def in_model(self, model: nn.Module, x: Tensor) -> AbstractContextManager[None]:
        """Return a context for exports: the output is this answer's, where a layer can give it."""
        return nullcontext()

    def remove(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Remove samples from what was learned, exactly; inputs are as the model takes them."""
        raise ValueError(
            f"answer {self.name!r} cannot remove samples: choose one that is a function of sums over samples "
            "('stream-ncm', 'slda', 'ranpac')"
        )
