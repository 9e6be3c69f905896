"""Avalanche: replay, penalty and step of a tmln method as a plugin of supervised strategies.

``pip install "tmln[avalanche]"``. A task is an experience::

    Naive(model=model, optimizer=SGD(model.parameters(), lr=0.01), plugins=[Parts("tmln")])
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tmln.learner.loop import get_rng_states, replay_forward
from tmln.methods import Batch, Penalty, Replay, Step, TaskContext
from tmln.methods.recipes import Recipe, find_recipe, make_components

try:
    from avalanche.benchmarks import OnlineCLExperience
    from avalanche.models import MultiTaskModule
    from avalanche.training.plugins import SupervisedPlugin
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error}; this integration needs Avalanche: pip install "tmln[avalanche]"') from error

EVAL_BATCH = 256  # samples in a pass at a task's end


class Parts(SupervisedPlugin):  # type: ignore[misc]
    """A tmln method in an Avalanche strategy: replay, penalty and step.

    Args:
        method: a recipe by name (``tmln list methods``), or a
        :class:`~tmln.methods.recipes.Recipe`.
        settings: settings of components, ``{"step.damping": 0.2, "replay.capacity": 200}``.
        seed: seed of the components.
        parts: ``replay``, ``penalty`` and ``step`` by name, in place of the recipe's.

    The learning rate is that of the strategy's optimizer and follows its schedule; nothing else of
    that optimizer is used. The loss is the strategy's, with what other plugins add; a step that
    evaluates the gradient again at other weights (``sam``) uses the criterion and our penalty
    alone. Replayed samples are stored as the data set returns them in eval mode, and are the last
    of ``mb_x``.

    Methods that need more are refused: memories with their own loss, averaged weights, answers
    other than the largest output.
    """

    supports_distributed = False

    def __init__(
        self,
        method: str | Recipe = "tmln",
        *,
        settings: Mapping[str, Any] | None = None,
        seed: int = 0,
        **parts: str,
    ) -> None:
        super().__init__()
        recipe = find_recipe(method) if isinstance(method, str) else method
        for family, name in parts.items():
            if family not in ("replay", "penalty", "step"):
                raise TypeError(f"Parts has no argument {family!r}; there are replay, penalty and step")
            recipe = recipe.with_component(family, name)
        self.recipe, self.seed = recipe.with_settings(settings or {}), seed
        _check(self.recipe)
        self.step: Step[Any] | None = None  # made when the strategy shows its model
        self.penalty: Penalty[Any]
        self.replay: Replay[Any]
        self.tasks = 0
        self.classes: tuple[int, ...] = ()  # met so far
        self._rate = math.nan  # of the strategy's optimizer, at first
        self._context: TaskContext | None = None  # within an experience
        self._batch: Batch | None = None
        self._random: list[Tensor] = []  # as the batch's pass began
        self._has_gradient = False  # the step was shown the task's gradient of this batch

    def before_training(self, strategy: Any, **_: Any) -> None:
        """Refuse multi-head models before the model is adapted."""
        if isinstance(strategy.model, MultiTaskModule):
            raise ValueError(
                f"{type(strategy.model).__name__} has a head for each task, and Parts measures model(x): give one head"
            )

    def before_training_exp(self, strategy: Any, **_: Any) -> None:
        """Begin a task; on the first one, check and take over the strategy."""
        if self.step is None:
            self._attach(strategy)
        elif {id(p) for p in self.penalty.parameters} != {id(p) for p in _list_trained(strategy.model)}:
            raise ValueError(
                "the model has other parameters than in the experience before (a head that grows?), of which the parts "
                "know nothing: give its head all classes from the beginning, or use tmln.Learner, whose heads grow"
            )
        if isinstance(strategy.experience, OnlineCLExperience):
            raise ValueError(
                "an online experience is a piece of a task, and each would count as one: train on the experiences of "
                "the benchmark itself"
            )
        assert self.step is not None
        new = tuple(sorted({int(label) for label in strategy.experience.dataset.targets}))
        samples = partial(_samples, strategy.experience.dataset)
        self._follow(strategy)
        self._context = TaskContext(
            self.tasks, strategy.model, new, self.classes, self.step.effective_lr, samples, _identity, EVAL_BATCH
        )
        for part in (self.replay, self.penalty, self.step):
            part.begin(self._context)

    def before_forward(self, strategy: Any, **_: Any) -> None:
        """Add stored samples to the batch, and prepare the step."""
        assert self.step is not None
        assert self._context is not None
        self._follow(strategy)
        x, y, *rest = strategy.mbatch
        more_x, more_y, fields = self.replay.draw(x, y)
        if len(more_y):
            # samples of no task of theirs: task labels are those of the batch
            rest = [torch.cat([t, t[:1].expand(len(more_y), *t.shape[1:])]) for t in rest]
            strategy.mbatch = [torch.cat([x, more_x.to(x)]), torch.cat([y, more_y.to(y)]), *rest]
        self._batch = Batch(strategy.mb_x, strategy.mb_y, len(y), fields)
        self._has_gradient = False
        self.step.before_forward(self._batch, self._context)
        self._random = get_rng_states(strategy.mb_x.device)

    def before_backward(self, strategy: Any, **_: Any) -> None:
        """Add the penalty that needs the graph to the loss."""
        assert self.step is not None
        assert self._batch is not None
        extra = self.penalty.loss(strategy.model, self._batch, strategy.mb_output)
        if extra is not None:
            if self._traced:  # the path is that of the task's gradient alone
                strategy.loss.backward(retain_graph=True)
                self.step.after_backward()
                self._has_gradient = True
                strategy.optimizer.zero_grad()
            strategy.loss = strategy.loss + extra

    def after_training_exp(self, strategy: Any, **_: Any) -> None:
        """End the task: memory, penalty, step, in the order of Algorithm 1."""
        assert self.step is not None
        assert self._context is not None
        for part in (self.replay, self.penalty, self.step):
            part.end(self._context)
        self.classes = tuple(sorted({*self.classes, *self._context.classes}))
        self.tasks += 1
        self._context = self._batch = None

    @property
    def _traced(self) -> bool:
        assert self.step is not None
        return self.step.tracks_path and (self.penalty.modifies_gradient or self.step.modifies_gradient)

    def _attach(self, strategy: Any) -> None:
        groups = strategy.optimizer.param_groups
        if len(groups) != 1:
            raise ValueError(f"Parts goes by one rate, and the strategy's optimizer has {len(groups)} groups; give one")
        if "optimizer_step" in vars(strategy):
            raise ValueError("something moves the weights of this strategy already: give it one Parts")
        self._rate = float(groups[0]["lr"])
        made: dict[str, Any] = make_components(self.recipe, strategy.model, self._rate, self.seed)
        self.replay, self.penalty, self.step = made["replay"], made["penalty"], made["step"]
        strategy.optimizer_step = partial(self._move, strategy)

    def _follow(self, strategy: Any) -> None:
        """Follow the learning rate of the strategy's optimizer."""
        assert self.step is not None
        factor = float(strategy.optimizer.param_groups[0]["lr"]) / self._rate
        for group in self.step.optimizer.param_groups:
            usual = group.setdefault("initial_lr", group["lr"])
            if group["lr"] != usual * factor:
                group["lr"] = usual * factor
                self.penalty.set_effective_lr(self.step.effective_lr)

    def _move(self, strategy: Any) -> None:
        """Take a step in place of ``optimizer.step()``, with the gradient in ``.grad``."""
        assert self.step is not None
        assert self._context is not None
        assert self._batch is not None
        closure = _Closure(self, strategy, self._batch)
        self.step.step(closure, self._context)
        self.penalty.after_step()
        if self._traced:
            self.step.after_update()
        new = self._batch.current
        epoch = strategy.clock.train_exp_epochs
        self.replay.after_step(strategy.mb_x[:new], strategy.mb_y[:new], strategy.mb_output[:new].detach(), epoch)


class _Closure:
    """Closure for the step; its first call uses the gradient that is there already."""

    def __init__(self, owner: Parts, strategy: Any, batch: Batch) -> None:
        self.owner, self.strategy, self.batch, self.first = owner, strategy, batch, True

    def __call__(self) -> float:
        owner, strategy = self.owner, self.strategy
        assert owner.step is not None
        if self.first:
            self.first = False
            if owner._traced and not owner._has_gradient:
                owner.step.after_backward()
            owner.penalty.after_backward()
            value = float(strategy.loss.detach())
        else:
            with replay_forward(strategy.model, owner._random, self.batch.x.device):
                output = strategy.model(self.batch.x)
                loss = strategy._criterion(output, self.batch.y)
                extra = owner.penalty.loss(strategy.model, self.batch, output)
                strategy.optimizer.zero_grad()
                (loss if extra is None else loss + extra).backward()
            value = float(loss.detach())
        owner.penalty.add_gradient()
        return value


def _check(recipe: Recipe) -> None:
    """Refuse what a plugin cannot do, by name."""
    settings = recipe.resolve_settings("replay")
    own = settings.get("balance") or settings.get("selection") == "herding" or settings.get("passes") == "separate"
    if recipe.replay.name not in ("none", "er") or own:
        raise ValueError(
            f"replay {recipe.replay.name!r} with {settings} has a loss or a memory of its own, and the loss is the "
            "strategy's: give replay='er' or replay='none', or use tmln.Learner"
        )
    for family, usual in (("weights", "last"), ("answer", "argmax")):
        if (name := getattr(recipe, family).name) != usual:
            raise ValueError(f"{family} {name!r} is about evaluation, which is the strategy's; use tmln.Learner")
    if recipe.restarts_each_task:
        raise ValueError("a method that begins afresh at every task is a reference of ours; use tmln.Learner")


def _list_trained(model: nn.Module) -> Iterator[nn.Parameter]:
    return (p for p in model.parameters() if p.requires_grad)


def _samples(dataset: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the samples of the experience once, in order, in eval mode."""
    for x, y, *_ in DataLoader(dataset.eval(), batch_size=EVAL_BATCH):
        yield x, y


def _identity(x: Tensor) -> Tensor:
    return x
