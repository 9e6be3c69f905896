"""The loop that everything goes through: one task after another, with any replay, any penalty, any step."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from math import prod
from os import PathLike
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tmln.curvature.untouched import untouched
from tmln.learner.checkpoint import load_file, save_file
from tmln.learner.diverged import diverged
from tmln.learner.evaluate import evaluate
from tmln.learner.intake import observe_intake
from tmln.learner.pieces import InPieces
from tmln.learner.scored import Scored
from tmln.learner.state import Place, as_before, restore, state_of
from tmln.parts import Batch, Lesson, Part, feed, to_model
from tmln.recipes import FAMILIES, Recipe, find_recipe, make_parts
from tmln.seeds import seed_of
from tmln.streams.arrays import DatasetSource, as_samples
from tmln.streams.prefetch import prefetch
from tmln.streams.samples import Samples, concat

AT_A_TIME = 256  # samples in a pass at a task's end, unless micro_batch is less
READ_AHEAD = 2**20  # values in a batch from which on it is read ahead by a thread
Augment = Callable[[Tensor, torch.Generator], Tensor]


def to_float(x: Tensor) -> Tensor:
    """Stored bytes as fractions; floats as they are."""
    return x.float() / 255 if x.dtype == torch.uint8 else x


def _not_augmented(prepare: Callable[[Tensor], Tensor], x: Tensor, generator: torch.Generator) -> Tensor:
    return prepare(x)


class Learner:
    """Trains a model on one task after another.

    >>> learner = Learner(nn.Linear(4, 3), method="tmln", lr=0.01, batch_size=8)
    >>> x, y = torch.randn(32, 4), torch.randint(3, (32,))
    >>> learner.learn((x, y), epochs=2)
    >>> sorted(learner.evaluate((x, y)))
    ['accuracy', 'loss']

    Args:
        method: a recipe by name (``tmln list methods``), or a :class:`~tmln.recipes.Recipe`.
        replay, penalty, step: parts by name, in place of the recipe's.
        settings: numbers of the parts, as ``{"step.damping": 0.2}``.
        augment, prepare: stored samples -> model inputs, in training and in testing; bytes become fractions unless
            given. ``augment`` gets a generator, so that a seed fixes a run.
        logit_mask: ``"seen"`` lets only the classes met so far compete, as if the head grew: in the loss, in every
            Fisher, importance, teacher and reference gradient, and in evaluation. ``scored`` is the model seen so.
        compile: the training pass goes through ``torch.compile``.
        micro_batch: samples that go through the model at a time; larger batches are passed in pieces, with the same
            result to rounding and the memory of a piece.
    """

    def __init__(
        self,
        model: nn.Module,
        method: str | Recipe = "tmln",
        *,
        replay: str | None = None,
        penalty: str | None = None,
        step: str | None = None,
        settings: Mapping[str, Any] | None = None,
        lr: float = 0.01,
        batch_size: int = 128,
        seed: int = 0,
        augment: Augment | None = None,
        prepare: Callable[[Tensor], Tensor] | None = None,
        logit_mask: Literal["none", "seen"] = "none",
        compile: bool = False,
        micro_batch: int | None = None,
    ) -> None:
        if not 0 < lr < math.inf:
            raise ValueError(f"lr must be positive and finite, got {lr}")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if logit_mask not in ("none", "seen"):
            raise ValueError(f"logit_mask must be 'none' or 'seen', got {logit_mask!r}")
        recipe = find_recipe(method) if isinstance(method, str) else method
        for family, name in (("replay", replay), ("penalty", penalty), ("step", step)):
            recipe = recipe if name is None else recipe.with_part(family, name)
        for key, value in (settings or {}).items():
            recipe = recipe.with_setting(key, value)
        self.model, self.recipe = model, recipe
        self.scored: nn.Module = Scored(model) if logit_mask == "seen" else model
        self.compile, self.micro_batch = compile, micro_batch
        self.at_a_time = min(AT_A_TIME, micro_batch or AT_A_TIME)  # in passes that take no step
        self._forward = self._made_forward()
        self.last_batch = 0  # samples in the last step, replayed ones included
        self.lr, self.batch_size, self.seed, self.logit_mask = lr, batch_size, seed, logit_mask
        self.prepare = prepare or to_float
        self.augment: Augment = augment or partial(_not_augmented, self.prepare)
        self.replay, self.penalty, self.step = make_parts(recipe, self.scored, lr, seed)
        self.tasks = 0
        self.classes: tuple[int, ...] = ()  # met so far, ascending
        self.order, self.noise = (
            torch.Generator().manual_seed(seed_of(seed, use)) for use in ("order", "augmentation")
        )
        self.place: Place | None = None  # within a task; None between tasks
        # `joint` and `independent` go back to the beginning at every task
        self.initial = copy.deepcopy(model.state_dict()) if recipe.joint or recipe.independent else None
        self.history: list[Samples] = []
        self.intake: dict[str, Any] | None = None  # what was done to stored samples, found at the first of them

    def learn(
        self,
        dataset: Any,
        epochs: int = 1,
        *,
        classes: Sequence[int] | None = None,
        boundary: bool = True,
        atomic: bool = True,
        on_step: Callable[[int, int, float], None] | None = None,
    ) -> None:
        """One task, its boundary included. ``on_step(epoch, step, loss)`` is called after every step.

        ``boundary=False`` is for data that flows without tasks: the parts are never told of an end, which some need.
        On a learner that was restored in the middle of a task, the same call goes on with that task. If it fails (bad
        data, a loss that is no number, Ctrl-C), the learner is as before the call; ``atomic=False`` saves the copy of
        the state that this takes.
        """
        samples = as_samples(dataset)
        if epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {epochs}")
        if not len(samples):
            raise ValueError("a task needs at least one sample, this one is empty")
        if not boundary:
            self._refuse_without_boundary()
        new = tuple(classes) if classes is not None else samples.classes
        with as_before(self) if atomic else nullcontext():
            self._learn(samples, new, epochs, boundary, on_step)

    def _learn(
        self,
        samples: Samples,
        new: tuple[int, ...],
        epochs: int,
        boundary: bool,
        on_step: Callable[[int, int, float], None] | None,
    ) -> None:
        if self.intake is None:
            self.intake = observe_intake(samples, self.prepare, self.augment)
        met = {*new, *samples.classes}  # blurry boundaries bring samples of other tasks' classes
        if self.recipe.joint:
            self.history = [*self.history[: self.tasks], samples]
            samples = concat(self.history)
        resumed = self.place is not None
        if not resumed:
            self._begin(met)
        assert self.place is not None
        lesson = self._lesson(samples, new, self.place.known)
        if not resumed:
            for part in self.parts:
                part.begin(lesson)
        self.model.train()
        while self.place.epoch < epochs:
            for number, (x, y) in self._rest_of_epoch(samples, self.place):
                loss = self._step(x, y, lesson, self.place.epoch, number)
                self.place.step = number + 1
                if on_step is not None:
                    on_step(self.place.epoch, number, loss)
            self.place.epoch, self.place.step = self.place.epoch + 1, 0
        self.place = None
        if boundary:
            for part in self.parts:
                part.end(lesson)
            self.tasks += 1

    @property
    def parts(self) -> tuple[Part[Any], ...]:
        return self.replay, self.penalty, self.step

    @property
    def diagnostics(self) -> dict[str, float]:
        """What the parts found at the last boundary: ``{"step/active": 0.12, ...}``; empty for most methods."""
        named = zip(FAMILIES, self.parts, strict=True)
        return {f"{family}/{key}": value for family, part in named for key, value in part.diagnostics.items()}

    def _begin(self, met: set[int]) -> None:
        if self.initial is not None:
            self.model.load_state_dict(self.initial)
            self.replay, self.penalty, self.step = make_parts(self.recipe, self.scored, self.lr, self.seed)
        self.place = Place(known=self.classes, order=self.order.get_state())
        self.meet({*self.classes, *met})

    def meet(self, classes: Iterable[int]) -> None:
        """From now on these are the classes met so far."""
        self.classes = tuple(sorted(classes))
        if isinstance(self.scored, Scored):
            self.scored.open(self.classes)

    def _rest_of_epoch(self, samples: Samples, place: Place) -> Iterator[tuple[int, tuple[Tensor, Tensor]]]:
        """The epoch's batches with their numbers, from the place on; the order is that of the epoch's beginning."""
        if place.step:
            self.order.set_state(place.order)
        else:
            place.order = self.order.get_state()
        batches = torch.randperm(len(samples), generator=self.order).split(self.batch_size)
        rest = ((n, samples.gather(rows)) for n, rows in enumerate(batches) if n >= place.step)
        # reading draws no random numbers, so a thread may do it ahead; for small batches in memory that costs more
        slow = isinstance(samples.source, DatasetSource) or self.batch_size * prod(samples.shape) >= READ_AHEAD
        return prefetch(rest, 2 if slow else 0)

    def _refuse_without_boundary(self) -> None:
        bound = [part for part in self.parts if part.needs_boundary]
        if bound or self.initial is not None:
            names = " and ".join(repr(part.name) for part in bound) or "starting afresh at every task"
            raise ValueError(
                f"{names} needs task boundaries: call learn() without boundary=False, or choose parts that do without "
                "(replay 'er' with replay.fill='online', 'der++', 'er-ace'; penalty 'none'; step 'sgd', 'upgd', 'ocar')"
            )

    def _step(self, x: Tensor, y: Tensor, lesson: Lesson, epoch: int, number: int) -> float:
        """One batch: what joins it, how it is scored, what is added, how the gradient becomes a move."""
        batch = self._batch(x, y)
        self.last_batch = len(batch.y)
        self.step.before_forward(batch, lesson)
        try:
            loss, output = self.replay.loss(self._forward, batch)
        except (IndexError, ValueError):
            self._explain(batch)
            raise
        extra = self.penalty.loss(self.scored, batch, output)
        total = loss if extra is None else loss + extra
        value = float(total.detach())
        if not math.isfinite(value):
            where = f"task {lesson.index + 1}, epoch {epoch + 1}, step {number + 1}"
            raise diverged(value, batch.x, where, self.lr, self.step.rate)
        for group in self.step.optimizer.param_groups:
            for p in group["params"]:
                p.grad = None  # zero_grad() without its bookkeeping, which a small network's step would notice
        if traced := self.step.traces and self.penalty.name != "none":
            loss.backward(retain_graph=extra is not None)
            self.step.look()
            if extra is not None:
                extra.backward()
        else:
            total.backward()
        self.penalty.add()
        self.step.step(lesson)
        self.penalty.after_step()
        if traced:
            self.step.walk()
        self.replay.after_step(x, y, output[: len(x)].detach(), epoch)
        return value

    def _batch(self, x: Tensor, y: Tensor) -> Batch:
        more_x, more_y, fields = self.replay.draw(x, y)
        inputs = feed(self.model, torch.cat([x, more_x]), lambda x: self.augment(x, self.noise))
        labels = to_model(self.model, torch.cat([y, more_y]))
        return Batch(inputs, labels, len(x), {name: to_model(self.model, value) for name, value in fields.items()})

    @torch.no_grad()
    def _explain(self, batch: Batch) -> None:
        """Raise in plain words what torch said of this batch in its own, if it is a usual mistake."""
        if len(batch.y) == 1 and any(isinstance(module, _BatchNorm) for module in self.model.modules()):
            raise ValueError(
                f"a batch of one sample is left over, by which BatchNorm cannot normalise: choose another batch_size "
                f"than {self.batch_size}, or leave a sample out"
            )
        with untouched(self.model, training=False):
            outputs = self.model(batch.x[:1]).shape[1]
        if (label := int(batch.y.max())) >= outputs:
            raise ValueError(f"label {label}, but the model has {outputs} outputs: give its head one for every class")

    def in_pieces(self, rows: int | None) -> None:
        """From now on so many samples go through the model at a time, at most; None: all of a batch.

        With batch norm, whose batches are passed whole, that holds for the passes at a task's end and for tests.
        """
        normed = any(isinstance(module, _BatchNorm) for module in self.model.modules())
        self.micro_batch, self.at_a_time = None if normed else rows, min(AT_A_TIME, rows or AT_A_TIME)
        self._forward = self._made_forward()

    def _made_forward(self) -> nn.Module:
        forward: nn.Module = torch.compile(self.scored) if self.compile else self.scored  # type: ignore[assignment]
        return forward if self.micro_batch is None else InPieces(forward, self.micro_batch)

    def _lesson(self, samples: Samples, classes: tuple[int, ...], known: tuple[int, ...]) -> Lesson:
        at_a_time = self.at_a_time

        def once() -> Iterator[tuple[Tensor, Tensor]]:
            return (samples.gather(rows) for rows in torch.arange(len(samples)).split(at_a_time))

        return Lesson(self.tasks, self.scored, classes, known, self.step.rate, once, self.prepare, at_a_time)

    def evaluate(self, dataset: Any) -> dict[str, float]:
        """Accuracy (a fraction) and mean loss, in eval mode, over all classes or, masked, those met so far."""
        seen = self.classes if self.logit_mask == "seen" else None
        rows = 2 * self.at_a_time  # without gradients they take less
        return evaluate(self.model, as_samples(dataset), self.prepare, open_classes=seen, batch_size=rows)

    def state_dict(self) -> dict[str, Any]:
        """All that the rest of a run depends on but the data: tensors, numbers and containers of them."""
        return state_of(self)

    def load_state_dict(self, state: Mapping[str, Any], history: Sequence[Any] = ()) -> None:
        """Go on exactly where ``state`` was taken. ``joint`` also needs its earlier tasks' data again: ``history``.

        A state that was trained on inputs made otherwise than ``prepare`` and ``augment`` make them is refused.
        """
        restore(self, state, history)

    def save(self, path: str | PathLike[str]) -> None:
        """Everything but the data and the model's code, in one file that can run no code when loaded."""
        options = {
            name: getattr(self, name) for name in ("lr", "batch_size", "seed", "logit_mask", "compile", "micro_batch")
        }
        save_file(path, {"recipe": asdict(self.recipe), "options": options, "state": self.state_dict()})

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        model: nn.Module,
        *,
        augment: Augment | None = None,
        prepare: Callable[[Tensor], Tensor] | None = None,
        history: Sequence[Any] = (),
    ) -> Learner:
        """A learner that goes on exactly where the saved one stopped; ``model`` is of the same architecture."""
        saved = load_file(path)
        learner = cls(model, Recipe.of(saved["recipe"]), augment=augment, prepare=prepare, **saved["options"])
        learner.load_state_dict(saved["state"], history)
        return learner

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_forward"}  # compiled code stays here

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._forward = self._made_forward()
