"""A part: what it declares of itself, how it is configured, made and saved, and when it is told of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo
from torch import Tensor, nn

from tmln.distributed.process_group import shard_like
from tmln.methods.growth import Growth
from tmln.methods.guide import Guide
from tmln.methods.task_context import TaskContext

if TYPE_CHECKING:
    from typing_extensions import Self


class Settings(BaseModel):
    """A part's numbers: typed, with ranges, frozen.

    A field's ``description`` is shown by ``tmln list parts``; ``json_schema_extra={"search": ...}`` says where
    ``tmln sweep`` and ``tmln tune`` look for its value: ``{"low", "high", "log"}``, or a list of values.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class MemoryTerm:
    """``times`` a unit of memory, under the name by which :func:`tmln.measure.memory_cost.held` finds it.

    Units: N, a sum for every trainable weight (in single precision for weights in half); W, the same in the weights'
    own precision; K, the Kronecker factors a^2 + g^2 of every layer; ``model``, a copy of the model; ``statistics``,
    its buffers; ``samples`` and ``logits``, what a memory stores of a sample; ``counts``, a number for every tensor of
    weights; ``doubles``, single numbers.
    """

    name: str
    unit: str
    times: int = 1
    derived: bool = False  # made from the rest and in no checkpoint: kept so that a step need not make it again


@dataclass(frozen=True)
class MemoryConditions:
    """What a formula depends on besides a part's settings."""

    gradient_modified: bool = False  # another part of the method changes the task's gradient or moves the weights
    half: bool = False  # the weights are in half precision


def weight_sums(*names: str) -> list[MemoryTerm]:
    """Each of these is a sum for every weight."""
    return [MemoryTerm(name, "N") for name in names]


@dataclass(frozen=True)
class BuildContext:
    """What a part can be made of: the model as it is scored, the rate, a seed of its own, the parts made before it."""

    model: nn.Module
    lr: float
    seed: int
    parts: Mapping[str, Component[Any]]


class Component(Generic[S]):
    """Something with settings, and with state that a checkpoint carries. It declares all that others ask of it:

    - ``name``, by which recipes call it, and the first line of its docstring, which ``tmln list parts`` shows;
    - ``Settings``: its numbers, with ranges, descriptions and where a search looks for them;
    - ``saved``: the attributes that are state: numbers, tensors, lists of tensors, or things with a state_dict;
    - how its state follows when the head grows: mappings from parameters or their names, and lists along ``aligned``,
      follow by themselves, with zeros in new rows, and so does whatever has a ``grow`` of its own; ``copies``, those
      that are copies of the weights, get the new weights there; ``per_class``, tensors with a row for each output;
    - ``holds``: the memory it takes, by formula;
    - ``needs_boundary``: it is of no use unless somebody says where a task ends;
    - ``bends``: it changes the task's gradient or moves the weights besides the step;
    - ``guide``: what its page in the documentation says besides: its rule, its origin, when to take it and when not;
      where that depends on settings, :meth:`guide_at` says so;
    - ``shards``: it works where each rank holds a part of every weight (``--strategy fsdp``); where that depends on
      settings, :meth:`in_shards` says so;
    - ``only_answers``: it has no say in training, whose weights are the same without it, to the bit;
    - for the tests that walk the tables: ``off``, settings at which it does nothing (None: there are none),
      ``active``, settings at which it visibly acts on a small network without diverging, and ``turned``, a change to
      those whose effect lies in what this part alone does (its loss, its pull, its move); ``needs``, parts of other
      families without which it cannot be made.
    """

    family: ClassVar[str]
    name: ClassVar[str]
    Settings: ClassVar[type[Settings]] = Settings
    saved: ClassVar[tuple[str, ...]] = ()
    copies: ClassVar[tuple[str, ...]] = ()
    per_class: ClassVar[tuple[str, ...]] = ()
    off: ClassVar[Mapping[str, Any] | None] = None
    active: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    turned: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    needs: ClassVar[Mapping[str, str]] = MappingProxyType({})
    guide: ClassVar[Guide | None] = None
    prediction_only: ClassVar[bool] = False
    supports_fsdp: ClassVar[bool] = False
    wraps: ClassVar[bool] = False  # around another part of its family, its setting ``inner``
    needs_boundary: bool = False
    modifies_gradient: bool = False
    settings: S
    diagnostics: Mapping[str, float] = MappingProxyType({})  # what the last boundary found, for the log

    @classmethod
    def make(cls, settings: Any, given: BuildContext) -> Self:
        """A part ready to train ``given.model``."""
        raise NotImplementedError

    @classmethod
    def memory_terms(cls, settings: Any, beside: MemoryConditions) -> list[MemoryTerm] | None:
        """What it holds in the middle of a task after the first; None where nobody has counted."""
        return None

    @classmethod
    def supports_fsdp_at(cls, settings: Any) -> bool:
        """Whether it works on weights of which each rank holds a part."""
        return cls.supports_fsdp

    @classmethod
    def guide_at(cls, settings: Any) -> Guide | None:
        """What there is to say of it at these settings, without what they switch off: for the pages of methods."""
        return cls.guide

    @classmethod
    def fields(cls, settings: Any) -> dict[str, FieldInfo]:
        """The settings that there are, by name."""
        return dict(cls.Settings.model_fields)

    @classmethod
    def inner_settings(cls, settings: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Where it wraps another: the settings of the other that are part of its own, of which some are ``given``."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device | None:
        """Where tensors of a loaded state belong; None: where they are."""
        return None

    @property
    def aligned(self) -> list[Tensor]:
        """The parameters that lists among ``saved`` are about, in their order."""
        return []

    @property
    def named(self) -> Mapping[str, Tensor]:
        """The model's tensors that mappings among ``saved`` are about, by name."""
        return {}

    def grow(self, growth: Growth) -> None:
        """The model's head has more outputs, with other parameters: which state follows them? What is declared does."""
        growth.swap(self.aligned)
        for name in self.saved:
            value = getattr(self, name)
            if hasattr(value, "grow"):
                value.grow(growth)
            elif name in self.per_class:
                setattr(self, name, growth.rows(value))
            elif isinstance(value, (list, Mapping)):
                setattr(self, name, growth.state(value, self.aligned, name in self.copies))

    def begin(self, context: TaskContext) -> None:
        """A task begins."""

    def end(self, context: TaskContext) -> None:
        """A task has ended. Weights come first, then replay, penalty and step: the order of Algorithm 1; then the
        answer."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers and containers of them."""
        return {name: _pack(getattr(self, name)) for name in self.saved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """What :meth:`state_dict` gave, copied: the part never shares memory with a state."""
        for name in self.saved:
            value = getattr(self, name)
            if isinstance(value, torch.optim.Optimizer):  # torch's takes the tensors themselves, and writes into them
                value.load_state_dict(cut_alike(value, copied(state[name])))
            elif hasattr(value, "load_state_dict"):
                value.load_state_dict(state[name])
            elif isinstance(value, torch.Generator):
                value.set_state(state[name].cpu())
            else:
                setattr(self, name, self._laid_out(copied(state[name], self.device)))

    def _laid_out(self, value: Any) -> Any:
        """Tensors that are about parameters in shards are cut as these are."""
        if isinstance(value, list) and self.aligned and all(isinstance(item, Tensor) for item in value):
            return [shard_like(item, p) for item, p in zip(value, self.aligned, strict=False)]
        if isinstance(value, dict) and self.named:
            named = self.named
            return {key: shard_like(item, named[key]) if key in named else item for key, item in value.items()}
        return value


def cut_alike(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """An optimizer's state, whole or in shards, as its parameters lie now."""
    ids = [index for group in state["param_groups"] for index in group["params"]]
    parameters = dict(zip(ids, (p for group in optimizer.param_groups for p in group["params"]), strict=False))
    cut = {
        index: {key: _cut(value, parameters.get(index)) for key, value in found.items()}
        for index, found in state["state"].items()
    }
    return {**state, "state": cut}


def _cut(value: Any, p: Tensor | None) -> Any:
    return shard_like(value, p) if p is not None and isinstance(value, Tensor) and value.shape == p.shape else value


def _pack(value: Any) -> Any:
    if hasattr(value, "state_dict"):
        return value.state_dict()
    if isinstance(value, torch.Generator):
        return value.get_state()
    return copied(value)


def copied(value: Any, device: torch.device | None = None) -> Any:
    """A state of its own: tensors are copies, on ``device`` if given, in lists and dictionaries of the same form."""
    if isinstance(value, Tensor):
        found = value.detach()
        return found.clone() if device is None or device == value.device else found.to(device)
    if isinstance(value, (list, tuple)):
        return type(value)(copied(item, device) for item in value)
    if isinstance(value, Mapping):
        return {key: copied(item, device) for key, item in value.items()}
    return value
