"""The loop that everything goes through: one task after another, with any replay, any penalty, any step."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tmln.learner.evaluate import evaluate, mask_logits
from tmln.parts import Batch, Lesson
from tmln.recipes import Recipe, find_recipe, make_parts
from tmln.streams.arrays import as_samples
from tmln.streams.samples import Samples, concat

Augment = Callable[[Tensor, torch.Generator], Tensor]


class Diverged(FloatingPointError):
    """The loss is no longer a number; nothing was stepped with it."""


def to_float(x: Tensor) -> Tensor:
    """Stored bytes as fractions; floats as they are."""
    return x.float() / 255 if x.dtype == torch.uint8 else x


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
        logit_mask: ``"seen"`` lets only the classes met so far compete.
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
    ) -> None:
        if not lr > 0:
            raise ValueError(f"lr must be positive, got {lr}")
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
        self.lr, self.batch_size, self.seed, self.logit_mask = lr, batch_size, seed, logit_mask
        self.prepare = prepare or to_float
        self.augment: Augment = augment or (lambda x, generator: self.prepare(x))
        self.replay, self.penalty, self.step = make_parts(recipe, model, lr, seed)
        self.tasks = 0
        self.classes: tuple[int, ...] = ()  # met so far, ascending
        self.order, self.noise = (torch.Generator().manual_seed(seed + offset) for offset in (1, 2))
        # `joint` goes back to the beginning at every task
        self._initial = copy.deepcopy(model.state_dict()) if recipe.joint else None
        self._history: list[Samples] = []

    def learn(
        self,
        dataset: Any,
        epochs: int = 1,
        *,
        classes: Sequence[int] | None = None,
        on_step: Callable[[int, int, float], None] | None = None,
    ) -> None:
        """One task, its boundary included. ``on_step(epoch, step, loss)`` is called after every step."""
        samples = as_samples(dataset)
        if epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {epochs}")
        if self._initial is not None:
            self._history.append(samples)
            samples = concat(self._history)
            self.model.load_state_dict(self._initial)
            self.replay, self.penalty, self.step = make_parts(self.recipe, self.model, self.lr, self.seed)
        new = tuple(classes) if classes is not None else samples.classes
        lesson = self._lesson(samples, new)
        self.classes = tuple(sorted({*self.classes, *new}))
        for part in (self.replay, self.penalty, self.step):
            part.begin(lesson)
        self.model.train()
        for epoch in range(epochs):
            for number, rows in enumerate(self._batches(len(samples))):
                x, y = samples.gather(rows)
                loss = self._step(x, y, lesson, epoch, number)
                if on_step is not None:
                    on_step(epoch, number, loss)
        for part in (self.replay, self.penalty, self.step):
            part.end(lesson)
        self.tasks += 1

    def _step(self, x: Tensor, y: Tensor, lesson: Lesson, epoch: int, number: int) -> float:
        """One batch: what joins it, how it is scored, what is added, how the gradient becomes a move."""
        device = next(self.model.parameters()).device
        more_x, more_y, fields = self.replay.draw(x, y)
        inputs = self.augment(torch.cat([x, more_x]).to(device), self.noise)
        batch = Batch(inputs, torch.cat([y, more_y]).to(device), len(x), fields)
        self.step.before_forward(self.model, batch, lesson)
        loss, output = self.replay.loss(self._masked, batch)
        extra = self.penalty.loss(self.model, batch, output)
        total = loss if extra is None else loss + extra
        value = float(total.detach())
        if not math.isfinite(value):
            raise Diverged(
                f"the loss is {value} in task {lesson.index + 1}, epoch {epoch + 1}, step {number + 1}: the steps are "
                f"too long (lr {self.lr}, rate in flat directions {self.step.rate:g}); lower lr or raise the damping"
            )
        self.step.optimizer.zero_grad()
        total.backward()
        self.penalty.add()
        self.step.step(self.model, self.prepare)
        self.penalty.after_step()
        self.replay.after_step(x, y, output[: len(x)].detach(), epoch)
        return value

    @property
    def _masked(self) -> nn.Module:
        if self.logit_mask == "none":
            return self.model
        return _Seen(self.model, self.classes)

    def _batches(self, count: int) -> Iterator[Tensor]:
        return iter(torch.randperm(count, generator=self.order).split(self.batch_size))

    def _lesson(self, samples: Samples, classes: tuple[int, ...]) -> Lesson:
        def once() -> Iterator[tuple[Tensor, Tensor]]:
            return (samples.gather(rows) for rows in torch.arange(len(samples)).split(256))

        known = tuple(c for c in self.classes if c not in classes)
        return Lesson(self.tasks, self.model, classes, known, self.step.rate, once, self.prepare)

    def evaluate(self, dataset: Any) -> dict[str, float]:
        """Accuracy (a fraction) and mean loss, in eval mode, over all classes or, masked, those met so far."""
        seen = self.classes if self.logit_mask == "seen" else None
        return evaluate(self.model, as_samples(dataset), self.prepare, open_classes=seen)


class _Seen(nn.Module):
    """A model whose unmet classes are closed; not a parent of the model."""

    def __init__(self, model: nn.Module, classes: tuple[int, ...]) -> None:
        super().__init__()
        self._inner = (model, classes)

    def forward(self, x: Tensor) -> Tensor:
        model, classes = self._inner
        return mask_logits(model(x), classes)
