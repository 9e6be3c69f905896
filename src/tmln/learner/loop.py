"""The loop that everything goes through: a task, its steps, its boundary."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tmln.distributed.data_parallel import check_identical_weights
from tmln.learner.closure import BatchClosure
from tmln.learner.epoch import rest_of_epoch
from tmln.learner.transform_fingerprint import observe_intake
from tmln.methods import Batch, TaskContext, move_to_model, prepare_inputs
from tmln.streams.samples import Samples, concat

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

OnStep = Callable[[int, int, float], None]


def learn_task(
    learner: Learner, samples: Samples, new: tuple[int, ...], epochs: int, boundary: bool, on_step: OnStep | None
) -> None:
    """One task with the classes ``new``, from the learner's place in it on, and its boundary."""
    if learner.intake is None:
        learner.intake = observe_intake(samples, learner.prepare, learner.augment)
    met = {*new, *samples.classes}  # blurry boundaries bring samples of other tasks' classes
    if learner.recipe.joint:
        learner.history = [*learner.history[: learner.tasks], samples]
        samples = concat(learner.history)
    resumed = learner.place is not None
    if not resumed:
        learner.start(met)
    place = learner.place
    assert place is not None
    changing, length = learner.pace.changes, -(-len(samples) // learner.batch_size)
    if changing:
        set_rate(learner, 1.0)  # what parts are told of is the configured one, also in a task that goes on
    context = make_task_context(learner, samples, new, place.known)
    if not resumed:
        for part in learner.parts:
            part.begin(context)
    learner.model.train()
    if not learner.step.trains_at(learner.step.settings, context.index):
        epochs = 0
    while place.epoch < epochs:
        for number, (x, y) in rest_of_epoch(samples, place, learner.order, learner.batch_size):
            if changing:
                set_rate(learner, learner.pace.factor(place.epoch * length + number, epochs * length))
            loss = take_step(learner, x, y, context, place.epoch, number)
            place.step = number + 1
            if on_step is not None:
                on_step(place.epoch, number, loss)
        place.epoch, place.step = place.epoch + 1, 0
    learner.place = None
    if changing:
        set_rate(learner, 1.0)
        for group in learner.step.optimizer.param_groups:
            group.pop("initial_lr", None)
    if boundary:
        end_task(learner, context)
        check_identical_weights(learner.model, learner.ranks)
        learner.tasks += 1


def end_task(learner: Learner, context: TaskContext) -> None:
    """Weights take over, then memory, penalty, step: Algorithm 1; then the answer. Memories are of the weights that
    answer."""
    learner.weights.end(context)
    for family, part in learner.by_family.items():
        if family in ("replay", "answer"):
            with learner.weights.prediction_weights():
                part.end(context)
        elif family != "weights":
            part.end(context)


def set_rate(learner: Learner, factor: float) -> None:
    """The step's rate is ``factor`` times the one it has between tasks, which torch's schedulers, too, keep so."""
    for group in learner.step.optimizer.param_groups:
        group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor
    learner.penalty.set_effective_lr(learner.step.effective_lr)


def take_step(learner: Learner, x: Tensor, y: Tensor, context: TaskContext, epoch: int, number: int) -> float:
    """One batch: what joins it, how it is scored, what is added, how the gradient becomes a move."""
    replay, penalty, step = learner.replay, learner.penalty, learner.step
    batch = joined(learner, x, y, context.reference_weight)
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
    return closure.value


def joined(learner: Learner, x: Tensor, y: Tensor, first: Tensor) -> Batch:
    """The current samples and those that replay puts behind them, augmented, where the model's ``first`` weight is."""
    current = len(y)
    more_x, more_y, fields = learner.replay.draw(x, y)
    if len(more_y):
        x, y = torch.cat([x, more_x]), torch.cat([y, more_y])
    inputs = prepare_inputs(first, x, lambda x: learner.augment(x, learner.noise))
    return Batch(
        inputs, move_to_model(first, y), current, {name: move_to_model(first, field) for name, field in fields.items()}
    )


def make_task_context(
    learner: Learner, samples: Samples, classes: tuple[int, ...], known: tuple[int, ...]
) -> TaskContext:
    """What the parts are told of a task."""
    at_a_time, rate, prepare = learner.at_a_time, learner.step.effective_lr, learner.prepare
    once = partial(samples.batches, at_a_time)
    return TaskContext(learner.tasks, learner.scored, classes, known, rate, once, prepare, at_a_time, learner.ranks)
