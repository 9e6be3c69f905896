"""The three parts of a method (replay, penalty, step): what each is asked, when, and how it is configured and saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

from tmln.suggest import did_you_mean

if TYPE_CHECKING:
    from tmln.replay.reservoir import Reservoir


@dataclass(frozen=True)
class Lesson:
    """What a part is told about the task being learned, at its beginning, at its steps and at its end."""

    index: int  # 0 for the first task
    model: nn.Module  # as it is scored: where classes are closed, their logits are -inf
    classes: tuple[int, ...]  # of this task
    known: tuple[int, ...]  # of all earlier tasks
    rate: float  # the step's rate in flat directions, for stability checks
    samples: Callable[[], Iterator[tuple[Tensor, Tensor]]]  # the task once, in order, as stored
    prepare: Callable[[Tensor], Tensor]  # stored samples -> model inputs, not augmented
    at_a_time: int = 256  # samples that fit through the model

    def ready(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Stored samples as the model takes them at test time."""
        return feed(self.model, x, self.prepare), to_model(self.model, y)

    def batches(self, memory: Reservoir | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """The memory's samples or, without one, the task's training data, as the model takes them at test time."""
        stored = memory.batches(self.at_a_time) if memory else self.samples()
        return (self.ready(x, y) for x, y in stored)


@dataclass(frozen=True)
class Batch:
    """A training batch: ``current`` samples of the task, then replayed ones, whose further fields are in ``fields``."""

    x: Tensor
    y: Tensor
    current: int
    fields: Mapping[str, Tensor] = field(default_factory=dict)


def to_model(model: nn.Module, value: Tensor) -> Tensor:
    """The tensor where the model is. Every move between devices goes through here."""
    return value.to(next(model.parameters()).device)


def feed(model: nn.Module, stored: Tensor, prepare: Callable[[Tensor], Tensor]) -> Tensor:
    """Stored samples as ``model`` takes them: on its device, prepared, floats in its precision."""
    inputs = prepare(to_model(model, stored))
    precision = next(model.parameters()).dtype
    return inputs.to(precision) if inputs.is_floating_point() and precision.is_floating_point else inputs


class Settings(BaseModel):
    """A part's numbers: typed, with ranges, frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid")


S = TypeVar("S", bound=Settings)


class Part(Generic[S]):
    """Something with settings, and with state that a checkpoint carries.

    ``saved`` names the attributes that are state: numbers, tensors, lists of tensors, or things with a state_dict.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[Settings]] = Settings
    saved: ClassVar[tuple[str, ...]] = ()
    off: ClassVar[Mapping[str, Any] | None] = {"strength": 0.0}  # settings at which it does nothing, if there are any
    needs_boundary: bool = False  # of no use unless somebody says where a task ends
    settings: S
    diagnostics: Mapping[str, float] = MappingProxyType({})  # what the last boundary found, for the log

    @property
    def device(self) -> torch.device | None:
        """Where tensors of a loaded state belong; None: where they are."""
        return None

    def begin(self, lesson: Lesson) -> None:
        """A task begins."""

    def end(self, lesson: Lesson) -> None:
        """A task has ended. Replay comes first, then penalty, then step: the order of Algorithm 1."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers and containers of them."""
        return {name: _pack(getattr(self, name)) for name in self.saved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in self.saved:
            value = getattr(self, name)
            if hasattr(value, "load_state_dict"):
                value.load_state_dict(state[name])
            elif isinstance(value, torch.Generator):
                value.set_state(state[name].cpu())
            else:
                setattr(self, name, copied(state[name], self.device))


class Replay(Part[S]):
    """What joins the batch, and how is it scored?"""

    memory: Reservoir | None = None

    def __init__(self, settings: S, seed: int) -> None:
        self.settings = settings

    def draw(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
        """Samples as stored, to be put behind the current ones: inputs, labels, further fields."""
        return x[:0], y[:0], {}

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of the union, and the model's output for it (-inf for closed classes)."""
        output = model(batch.x)
        return nn.functional.cross_entropy(output, batch.y), output

    def after_step(self, x: Tensor, y: Tensor, output: Tensor, epoch: int) -> None:
        """The current samples as stored, and what the model said of them before the step."""


class Penalty(Part[S]):
    """What is added to the loss?"""

    def __init__(self, settings: S, model: nn.Module) -> None:
        self.settings = settings
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]

    @property
    def device(self) -> torch.device | None:
        return self.parameters[0].device if self.parameters else None

    def loss(self, model: nn.Module, batch: Batch, output: Tensor) -> Tensor | None:
        """A term that needs the graph; None where ``add`` does it."""
        return None

    def add(self) -> None:
        """The task's gradient is in ``.grad``: look at it, and add the penalty's own."""

    def after_step(self) -> None:
        """The parameters have moved."""


class Step(Part[S]):
    """How does a gradient become a move?"""

    optimizer: torch.optim.Optimizer
    traces: bool = False  # integrates the task's gradient along the way: wants ``look`` and ``walk`` beside a penalty

    def __init__(self, settings: S, model: nn.Module, lr: float, seed: int, memory: Reservoir | None = None) -> None:
        self.settings = settings
        self.memory = memory  # the replay part's, if it has one

    @property
    def rate(self) -> float:
        """The learning rate in directions without curvature."""
        return float(self.optimizer.param_groups[0]["lr"])

    def before_forward(self, batch: Batch, lesson: Lesson) -> None:
        """The batch is there, the model has not seen it."""

    def look(self) -> None:
        """The task's gradient is in ``.grad``, and a penalty will add its own or move the weights after the step."""

    def step(self, lesson: Lesson) -> None:
        """Move the weights along ``.grad``."""
        self.optimizer.step()

    def walk(self) -> None:
        """After ``look`` and ``step``: all that moves the weights in this step has done so."""


P = TypeVar("P", bound=Part[Any])


def find_part(family: str, table: Mapping[str, type[P]], name: str) -> type[P]:
    if name not in table:
        raise ValueError(
            f"unknown {family} {name!r}{did_you_mean(name, table)} ({family}s: {', '.join(table)}; tmln list parts)"
        )
    return table[name]


def read_settings(part: type[Part[Any]], values: Mapping[str, Any]) -> Any:
    """The part's settings from plain values, with errors that name the setting, the value and what is allowed."""
    known = part.Settings.model_fields
    for key in values:
        if key not in known:
            allowed = ", ".join(known) or "none"
            raise ValueError(f"{part.name!r} has no setting {key!r}{did_you_mean(key, known)} (settings: {allowed})")
    try:
        return part.Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(place) for place in first["loc"])
        raise ValueError(f"{part.name}.{where} = {first['input']!r}: {first['msg']}") from None


def _pack(value: Any) -> Any:
    if hasattr(value, "state_dict"):
        return value.state_dict()
    if isinstance(value, torch.Generator):
        return value.get_state()
    return copied(value)


def copied(value: Any, device: torch.device | None = None) -> Any:
    """A state of its own: tensors are copies, on ``device`` if given, in lists and dictionaries of the same form."""
    if isinstance(value, Tensor):
        return value.detach().to(device or value.device, copy=True)
    if isinstance(value, (list, tuple)):
        return type(value)(copied(item, device) for item in value)
    if isinstance(value, Mapping):
        return {key: copied(item, device) for key, item in value.items()}
    return value
