"""The training loop, from top to bottom: task, epochs, steps, closure, boundary."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_buffers, preserve_model
from tmln.distributed.data_parallel import check_identical_weights, has_batch_norm
from tmln.learner.frozen_features import reuse_features
from tmln.methods import Batch, Step, TaskContext, choose_heads, move_to_model, prepare_inputs
from tmln.methods.fine_tuning import set_training_mode
from tmln.streams.arrays import DatasetSource
from tmln.streams.samples import Samples, concat, prefetch

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

OnStep = Callable[[int, int, float], None]
OnBatch = Callable[[int, int, Tensor, Tensor], None]
READ_EVERY = 10  # steps of an epoch after which a loss on a GPU is read
PREFETCH_VALUES = 2**20  # values in a batch from which on it is read ahead by a thread


class Diverged(FloatingPointError):
    """The loss is not finite; no step was taken with it."""


@dataclass
class TaskPosition:
    """Where in a task: epoch and step to come, the order's generator state, known classes."""

    known: tuple[int, ...]
    order: Tensor
    epoch: int = 0
    step: int = 0


@dataclass
class StreamPosition:
    """Where in the stream: tasks learned, classes met, generators of order and augmentation."""

    order: torch.Generator
    noise: torch.Generator
    tasks: int = 0
    classes: tuple[int, ...] = ()  # met so far, ascending
    names: tuple[str, ...] = ()  # of the classes, by index; empty where they are numbers
    within: TaskPosition | None = None  # None between tasks


def learn_task(
    learner: Learner,
    samples: Samples,
    new: tuple[int, ...],
    epochs: int,
    boundary: bool,
    on_step: OnStep | None,
    on_batch: OnBatch | None = None,
) -> None:
    """Learn one task with the classes ``new`` from the current position on, and its boundary."""
    position, seen, schedule = learner.position, learner.seen, learner.lr_schedule
    if learner.recipe.joint:
        seen.history = [*seen.history[: position.tasks], samples]
        samples = concat(seen.history)
    resumed = position.within is not None
    if not resumed:
        learner.start({*new, *samples.classes})  # blurry boundaries bring samples of other tasks' classes
    within = position.within
    assert within is not None
    steps = -(-len(samples) // learner.batch_size)
    if schedule.changes:
        scale_lr(learner, 1.0)  # components are given the configured rate, also in a task that is resumed
    learner.trained.open_head({*new, *samples.classes})
    context = make_task_context(learner, samples, new, within.known)
    if not resumed:
        for component in learner.components.values():
            component.begin(context)
    set_training_mode(learner.model)
    learner.last_loss, x = math.nan, torch.empty(0)
    if not learner.step.trains_at(learner.step.settings, context.index):
        epochs = 0
    with reuse_features(learner, samples) if epochs else nullcontext():
        while within.epoch < epochs:
            for number, (x, y) in iterate_epoch(samples, within, position.order, learner.batch_size):
                if schedule.changes:
                    scale_lr(learner, schedule.factor(within.epoch * steps + number, epochs * steps))
                if on_batch is not None:
                    on_batch(within.epoch, number, x, y)
                loss = take_step(learner, x, y, context, within.epoch, number)
                within.step = number + 1
                if on_step is not None:
                    on_step(within.epoch, number, loss)
            within.epoch, within.step = within.epoch + 1, 0
    check_unread_loss(learner, x, f"task {context.index + 1}")
    position.within = None
    if schedule.changes:
        scale_lr(learner, 1.0)
        for group in learner.step.optimizer.param_groups:
            group.pop("initial_lr", None)
    if boundary:
        end_task(learner, context)
        check_identical_weights(learner.model, learner.trained.ranks)
        position.tasks += 1


def iterate_epoch(
    samples: Samples, within: TaskPosition, order: torch.Generator, batch_size: int
) -> Iterator[tuple[int, tuple[Tensor, Tensor]]]:
    """Yield the epoch's batches with their numbers, from the position on."""
    if within.step:
        order.set_state(within.order)
    else:
        within.order = order.get_state()
    batches = torch.randperm(len(samples), generator=order).split(batch_size)
    rest = ((n, samples.gather(rows)) for n, rows in enumerate(batches) if n >= within.step)
    # reading draws no random numbers, so a thread may do it; for small batches that costs more
    slow = isinstance(samples.source, DatasetSource) or batch_size * math.prod(samples.shape) >= PREFETCH_VALUES
    return prefetch(rest, 2 if slow else 0)


def take_step(learner: Learner, x: Tensor, y: Tensor, context: TaskContext, epoch: int, number: int) -> float:
    """Take one step on a batch and return its loss, or the last that was read (`is_loss_read`)."""
    replay, penalty, step = learner.replay, learner.penalty, learner.step
    batch = replay.select(join_batch(learner, x, y, context.reference_weight), context)
    learner.last_batch = len(batch.y)
    step.before_forward(batch, context)
    closure = BatchClosure(learner, batch, context, epoch, number)
    step.step(closure, context)
    if closure.output is None:
        raise RuntimeError(f"step {step.name!r} never asked for the gradient: call closure() in step()")
    penalty.after_step()
    if closure.tracks_path:
        step.after_update()
    replay.after_step(x, y, closure.output[: len(x)].detach(), epoch)
    learner.weights.after_step()
    return learner.shown_loss


def join_batch(learner: Learner, x: Tensor, y: Tensor, reference: Tensor) -> Batch:
    """Return current and replayed samples as one augmented batch, at ``reference``'s device."""
    current = len(y)
    replayed_x, replayed_y, fields = learner.replay.draw(x, y)
    if len(replayed_y):
        x, y = torch.cat([x, replayed_x]), torch.cat([y, replayed_y])
    inputs = prepare_inputs(reference, x, lambda x: learner.augment(x, learner.position.noise))
    moved = {name: move_to_model(reference, field) for name, field in fields.items()}
    return Batch(inputs, move_to_model(reference, y), current, moved)


def is_loss_read(device: torch.device, number: int) -> bool:
    """Return whether the loss of a step is read and checked: on a GPU, reading waits for all work.

    There it is read at every tenth step of an epoch and at a task's end.
    """
    return device.type == "cpu" or number % READ_EVERY == 0


def check_loss(learner: Learner, loss: float, inputs: Tensor, where: str) -> None:
    """Raise `Diverged` if the loss is not finite."""
    if not math.isfinite(loss):
        raise explain_divergence(loss, inputs, where, learner.lr, learner.step)


def check_unread_loss(learner: Learner, inputs: Tensor, where: str) -> None:
    """Read and check the last step's loss at a task's end, if that step did not."""
    if isinstance(learner.last_loss, Tensor):
        check_loss(learner, float(learner.last_loss), inputs, where)


class BatchClosure:
    """Loss, penalty and gradient of one batch, as often as a step asks; the first call counts.

    ``output`` is the first call's; ``tracks_path``: the step needs ``after_update``.
    What counts once is in tmln/methods/interfaces.py.
    """

    def __init__(self, learner: Learner, batch: Batch, context: TaskContext, epoch: int, number: int) -> None:
        self.learner, self.batch, self.context = learner, batch, context
        self.epoch, self.number = epoch, number
        self.tracks_path = learner.step.tracks_path and (
            learner.penalty.modifies_gradient or learner.step.modifies_gradient
        )
        self.output: Tensor | None = None
        self.device = batch.x.device
        self.random = get_rng_states(self.device)

    def __call__(self) -> float:
        if self.output is None:
            value, self.output = self._evaluate(first=True)
            return value
        with replay_forward(self.learner.model, self.random, self.device):
            return self._evaluate(first=False)[0]

    def _evaluate(self, first: bool) -> tuple[float, Tensor]:
        learner, batch, trained = self.learner, self.batch, self.learner.trained
        step, penalty, observes = learner.step, learner.penalty, first and self.tracks_path
        try:
            with choose_heads(trained.masked, batch.y):
                loss, output = learner.replay.loss(trained.forward, batch)
        except (IndexError, ValueError):
            explain_failure(learner.model, batch, learner.batch_size)
            raise
        with choose_heads(trained.masked, batch.y):
            extra = penalty.loss(trained.masked, batch, output)
        total = loss if extra is None else loss + extra
        value: Any = total.detach()
        if is_loss_read(self.device, self.number):
            value = float(value)
            where = f"task {self.context.index + 1}, epoch {self.epoch + 1}, step {self.number + 1}"
            check_loss(learner, value, batch.x, where)
            if first:
                learner.shown_loss = value
        if first:
            learner.last_loss = value
        parameters = [p for group in step.optimizer.param_groups for p in group["params"]]
        for p in parameters:
            p.grad = None  # zero_grad() without its bookkeeping, which a small network's step would notice
        if observes and extra is not None:
            trained.backward(loss, parameters, retain_graph=True)
            step.after_backward()
            trained.backward(extra, parameters)
        else:
            trained.backward(total, parameters)
            if observes:
                step.after_backward()
        if first:
            penalty.after_backward()
        penalty.add_gradient()
        return value, output


def end_task(learner: Learner, context: TaskContext) -> None:
    """End a task: weights first, then memory, penalty and step (Algorithm 1), then the answer.

    Memory and answer see the weights that predict.
    """
    learner.weights.end(context)
    for family, component in learner.components.items():
        if family in ("replay", "answer"):
            with learner.weights.prediction_weights():
                component.end(context)
        elif family != "weights":
            component.end(context)


def scale_lr(learner: Learner, factor: float) -> None:
    """Set the step's rate to ``factor`` times ``initial_lr``, as torch's schedulers do."""
    for group in learner.step.optimizer.param_groups:
        group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor
    learner.penalty.set_effective_lr(learner.step.effective_lr)


def make_task_context(
    learner: Learner, samples: Samples, classes: tuple[int, ...], known: tuple[int, ...]
) -> TaskContext:
    """Return what components are given at the beginning and end of a task."""
    trained, rows = learner.trained, learner.trained.rows_per_pass
    batches, rate = partial(samples.batches, rows), learner.step.effective_lr
    return TaskContext(
        learner.position.tasks,
        trained.masked,
        classes,
        known,
        rate,
        batches,
        learner.prepare,
        rows,
        trained.ranks,
        -(-len(samples) // rows),
        learner.augment,
    )


@contextmanager
def replay_forward(model: nn.Module, random: list[Tensor], device: torch.device) -> Iterator[None]:
    """Use the random numbers of the first call in the block; restore them and statistics."""
    cuda = [device] if device.type == "cuda" else []
    with preserve_buffers(model), torch.random.fork_rng(cuda):
        torch.set_rng_state(random[0])
        if cuda:
            torch.cuda.set_rng_state(random[1], device)
        yield


def get_rng_states(device: torch.device) -> list[Tensor]:
    """Return the states of torch's own generators, that of the CPU first."""
    cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *cuda]


@torch.no_grad()
def explain_failure(model: nn.Module, batch: Batch, batch_size: int) -> None:
    """Raise a plain error for a usual mistake in this batch, in place of torch's own."""
    if len(batch.y) == 1 and has_batch_norm(model):
        raise ValueError(
            f"a batch of one sample is left over, by which BatchNorm cannot normalise: choose another batch_size "
            f"than {batch_size}, or leave a sample out"
        )
    with preserve_model(model, training=False):
        outputs = model(batch.x[:1]).shape[1]
    if (label := int(batch.y.max())) >= outputs:
        raise ValueError(f"label {label}, but the model has {outputs} outputs: give its head one for every class")


def explain_divergence(loss: float, inputs: Tensor, where: str, lr: float, step: Step[Any]) -> Diverged:
    """Return the error for a loss that is not finite, with advice for this step."""
    if not bool(inputs.isfinite().all()):
        return Diverged(
            f"the loss is {loss} in {where}: the batch of {len(inputs)} samples holds values that are not finite; "
            "look at the data"
        )
    name, inner = "step.", step
    while inner.is_wrapper:
        name, inner = f"{name}inner.", getattr(inner, "inner")  # noqa: B009
    damping = getattr(inner.settings, "damping", None)
    rate = float(inner.optimizer.param_groups[0]["lr"])
    lowers = damping is not None and math.isclose(inner.effective_lr * damping, rate)
    return Diverged(
        f"the loss is {loss} in {where} (a batch of {len(inputs)}): the steps are too long (lr {lr}, effective rate "
        f"{step.effective_lr:g}); lower lr{f' or raise {name}damping' if lowers else ''}"
    )
