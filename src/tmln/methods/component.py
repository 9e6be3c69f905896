"""A component: its declarations, how it is built and saved, and how its state grows."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo
from torch import Tensor, nn

from tmln.distributed.process_group import shard_like
from tmln.methods.registry import Guide
from tmln.methods.task_context import TaskContext
from tmln.optim.state import check_replacement, grow_tensor, has_parameter, replace_parameter

if TYPE_CHECKING:
    from typing_extensions import Self


class Settings(BaseModel):
    """A component's settings: typed, with ranges, frozen.

    ``tmln list components`` shows a field's ``description``. ``json_schema_extra={"search": ...}``
    is the range for ``tmln sweep`` and ``tmln tune``: ``{"low", "high", "log"}``, or a list.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


LARGEST = sys.float_info.max
S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class MemoryTerm:
    """``times`` units of memory, named as by :func:`tmln.measure.memory_cost.find_held_bytes`.

    Units: N, a number for every trainable weight (in float32 for weights in half precision); H,
    half as many bytes; W, as N in the weights' own precision; K, the Kronecker factors a^2 + g^2 of
    every layer; ``model``, a copy of the model; ``statistics``, its buffers; ``samples`` and
    ``logits``, what a memory stores of a sample; ``counts``, a number for every tensor of weights;
    ``doubles``, single numbers. Of d features (the inputs of the last linear layer) and C classes:
    ``d``, ``C``, ``dC``, ``d^2`` and ``d^2C``, so many numbers in float32; ``numbers``, one of
    them. A double counts as two.
    """

    name: str
    unit: str
    times: int = 1
    derived: bool = False  # computed from other state, and in no checkpoint


@dataclass(frozen=True)
class MemoryConditions:
    """What a memory formula depends on besides the component's settings."""

    gradient_modified: bool = False  # another component changes the task's gradient or moves the weights
    half: bool = False  # the weights are in half precision
    trains: bool = True  # the task takes steps


def weight_sums(*names: str) -> list[MemoryTerm]:
    """Return a term of N for each name: one number for every trainable weight."""
    return [MemoryTerm(name, "N") for name in names]


@dataclass(frozen=True)
class BuildContext:
    """What a component is built from; the seed is its own."""

    model: nn.Module
    lr: float
    seed: int
    components: Mapping[str, Component[Any]]  # by family


@dataclass(frozen=True, eq=False)
class Growth:
    """A head that got more outputs: which parameters replaced which.

    A restored state may have fewer outputs than the model: then rows are cut.
    """

    parameters: Mapping[Tensor, Tensor]  # old -> new
    names: Mapping[str, Tensor]  # as in ``model.state_dict()`` -> new
    before: int  # outputs
    after: int

    def replace_parameters(self, parameters: list[Tensor]) -> None:
        """Replace in place every parameter that has a successor."""
        parameters[:] = [self.parameters.get(p, p) for p in parameters]

    def grow_state(self, value: Any, parameters: Sequence[Tensor] = (), copy: bool = False) -> Any:
        """Return state with rows for the new outputs: zeros or, with ``copy``, the new weights.

        ``value`` is a mapping from parameters or their names, or a list in the order of
        ``parameters`` (which are already the new ones).
        """
        if isinstance(value, Mapping):
            return {
                self.parameters.get(key, key) if isinstance(key, Tensor) else key: _grow(item, self._new(key), copy)
                for key, item in value.items()
            }
        if isinstance(value, list) and parameters and all(isinstance(item, Tensor) for item in value):
            new = set(map(id, self.parameters.values()))
            pairs = zip(value, parameters, strict=False)
            return [_grow(item, p if id(p) in new else None, copy) for item, p in pairs]
        return value

    def grow_rows(self, value: Tensor) -> Tensor:
        """Return a tensor with one row per output, with zeros for the new outputs."""
        made, kept = value.new_zeros(self.after, *value.shape[1:]), min(self.after, len(value))
        made[:kept] = value[:kept]
        return made

    def update_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Replace parameters in any optimizer, by its own ``replace`` if it has one."""
        for old, new in self.parameters.items():
            if not has_parameter(optimizer, old):
                continue
            if hasattr(optimizer, "replace") and len(new) >= len(old):
                check_replacement(old, new)
                optimizer.replace(old, new)
            else:
                replace_parameter(optimizer, old, new)

    def _new(self, key: Any) -> Tensor | None:
        return self.parameters.get(key) if isinstance(key, Tensor) else self.names.get(key)


def _grow(value: Any, new: Tensor | None, copy: bool) -> Any:
    if new is None or not isinstance(value, Tensor) or value.shape[1:] != new.shape[1:]:
        return value
    return grow_tensor(value, new, copy)


class Component(Generic[S]):
    """One answer to one of a method's questions, with settings and saved state.

    A subclass of :class:`Replay`, :class:`Penalty`, :class:`Step`, :class:`Weights` or
    :class:`Answer` declares:

    Attributes:
        name: The name in recipes and configurations. The first line of the docstring is shown by
            ``tmln list components``.
        Settings: The settings, with ranges, descriptions and search ranges.
        state_names: The attributes that are state: numbers, tensors, lists or mappings of tensors,
            generators, or objects with a ``state_dict``. Lists in the order of
            :attr:`state_parameters` and mappings keyed by parameters or their names grow with the
            head, with zeros in new rows; objects with ``grow`` do it alone.
        weight_copy_names: Those that are copies of the weights: new rows get the new weights.
        class_row_names: Those that are tensors with a row for each output.
        needs_boundary: Works only where task boundaries are known.
        trains_at_end: Trains at a task's end, and so changes the weights there.
        modifies_gradient: Changes the task's gradient, or moves the weights besides the step.
        is_prediction_only: Has no effect on training.
        is_wrapper: Wraps another component of its family, named by its setting ``inner``.
        supports_fsdp: Works where each rank holds a shard of every weight; :meth:`supports_fsdp_at`
            if settings decide.
        fixed_memory_terms: The memory that it holds, where that does not depend on settings.
        guide: Documentation; :meth:`guide_for` if it depends on settings.
        required_components: Components of other families, ``{family: name}``, without which it
            cannot be built.
        off_settings: For the tests over all components: settings at which it does nothing; None if
            there are none.
        active_settings: For those tests: settings at which it has a visible effect on a small
            network.
        changed_settings: For those tests: a change of ``active_settings`` with a different effect.
        diagnostics: Numbers from the last task boundary, for the log.
    """

    family: ClassVar[str]
    name: ClassVar[str]
    Settings: ClassVar[type[Settings]] = Settings
    state_names: ClassVar[tuple[str, ...]] = ()
    weight_copy_names: ClassVar[tuple[str, ...]] = ()
    class_row_names: ClassVar[tuple[str, ...]] = ()
    off_settings: ClassVar[Mapping[str, Any] | None] = None
    active_settings: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    changed_settings: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    required_components: ClassVar[Mapping[str, str]] = MappingProxyType({})
    fixed_memory_terms: ClassVar[Sequence[MemoryTerm] | None] = None
    guide: ClassVar[Guide | None] = None
    is_prediction_only: ClassVar[bool] = False
    supports_fsdp: ClassVar[bool] = False
    is_wrapper: ClassVar[bool] = False
    needs_boundary: bool = False
    trains_at_end: ClassVar[bool] = False
    modifies_gradient: bool = False
    settings: S
    diagnostics: Mapping[str, float] = MappingProxyType({})

    @classmethod
    def make(cls, settings: Any, context: BuildContext) -> Self:
        """Build a component that is ready to train ``context.model``."""
        raise NotImplementedError

    @classmethod
    def refuse_task_heads(cls, settings: Any) -> str:
        """Return why it does not work where every task has its own head; empty where it does."""
        return ""

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        """Return the memory held in the middle of a task after the first; None if unknown."""
        return None if cls.fixed_memory_terms is None else list(cls.fixed_memory_terms)

    @classmethod
    def supports_fsdp_at(cls, settings: Any) -> bool:
        """Return whether it works on sharded weights with these settings."""
        return cls.supports_fsdp

    @classmethod
    def guide_for(cls, settings: Any) -> Guide | None:
        """Return the documentation at these settings, without what they switch off."""
        return cls.guide

    @classmethod
    def setting_fields(cls, settings: Any) -> dict[str, FieldInfo]:
        """Return the fields of the settings by name, those of a wrapped component included."""
        return dict(cls.Settings.model_fields)

    @classmethod
    def resolve_inner_settings(cls, settings: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the wrapped component's settings, some of them ``given``, to store in its own."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device | None:
        """The device for tensors of a loaded state; None: they stay where they are."""
        return None

    @property
    def state_parameters(self) -> list[Tensor]:
        """The parameters that lists among the state are about, in their order."""
        return []

    @property
    def named_tensors(self) -> Mapping[str, Tensor]:
        """The model's tensors that mappings among the state are about, by name."""
        return {}

    def grow(self, growth: Growth) -> None:
        """Let the declared state follow a head that got more outputs."""
        growth.replace_parameters(self.state_parameters)
        for name in self.state_names:
            value = getattr(self, name)
            if hasattr(value, "grow"):
                value.grow(growth)
            elif name in self.class_row_names:
                setattr(self, name, growth.grow_rows(value))
            elif isinstance(value, (list, Mapping)):
                setattr(self, name, growth.grow_state(value, self.state_parameters, name in self.weight_copy_names))

    def relabel(self, into: Mapping[int, int | None]) -> None:
        """Let stored labels follow classes that were merged into another one, or removed (None)."""

    def begin(self, context: TaskContext) -> None:
        """Prepare for a task."""

    def end(self, context: TaskContext) -> None:
        """Handle the end of a task. Order: weights, replay, penalty, step (Algorithm 1), answer."""

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state: tensors, numbers and containers of them."""
        return {name: _pack(getattr(self, name)) for name in self.state_names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a copy of what :meth:`state_dict` returned: no memory is shared with it."""
        for name in self.state_names:
            value = getattr(self, name)
            if isinstance(value, torch.optim.Optimizer):  # torch's takes the tensors themselves, and writes into them
                whole = check_optimizer_groups(value, copy_state(state[name]))
                value.load_state_dict(shard_optimizer_state(value, whole))
            elif hasattr(value, "load_state_dict"):
                value.load_state_dict(state[name])
            elif isinstance(value, torch.Generator):
                value.set_state(state[name].cpu())
            else:
                setattr(self, name, self._shard(copy_state(state[name], self.device)))

    def _shard(self, value: Any) -> Any:
        """Cut tensors as the parameters are that they are about."""
        if isinstance(value, list) and self.state_parameters and all(isinstance(item, Tensor) for item in value):
            return [shard_like(item, p) for item, p in zip(value, self.state_parameters, strict=False)]
        if isinstance(value, dict) and self.named_tensors:
            named = self.named_tensors
            return {key: shard_like(item, named[key]) if key in named else item for key, item in value.items()}
        return value


def check_optimizer_groups(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """Return an optimizer's state with every setting of its groups, their kinds checked.

    A setting that an earlier version did not know has the value of the recipe.
    """
    groups = []
    for own, saved in zip(optimizer.param_groups, state["param_groups"], strict=False):
        for key, value in own.items():
            if isinstance(value, (bool, int, float)) and key in saved:
                wanted, found = isinstance(value, bool), saved[key]
                fits = isinstance(found, bool) if wanted else isinstance(found, (int, float)) and abs(found) <= LARGEST
                if not fits:
                    kind = "a truth value" if wanted else "a finite number"
                    raise ValueError(f"the optimizer's {key} is {str(found)[:60]!r}, not {kind}")
        groups.append({**{key: value for key, value in own.items() if key != "params"}, **saved})
    return {**state, "param_groups": groups}


def shard_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """Return an optimizer's state, whole or sharded, cut as the optimizer's parameters are now."""
    ids = [index for group in state["param_groups"] for index in group["params"]]
    parameters = dict(zip(ids, (p for group in optimizer.param_groups for p in group["params"]), strict=False))

    def cut(value: Any, p: Tensor | None) -> Any:
        alike = p is not None and isinstance(value, Tensor) and value.shape == p.shape
        return shard_like(value, p) if alike and p is not None else value

    values = {
        index: {key: cut(value, parameters.get(index)) for key, value in found.items()}
        for index, found in state["state"].items()
    }
    return {**state, "state": values}


def _pack(value: Any) -> Any:
    if hasattr(value, "state_dict"):
        return value.state_dict()
    if isinstance(value, torch.Generator):
        return value.get_state()
    return copy_state(value)


def copy_state(value: Any, device: torch.device | None = None) -> Any:
    """Return a deep copy of a state, with its tensors on ``device`` if given."""
    if isinstance(value, Tensor):
        found = value.detach()
        return found.clone() if device is None or device == value.device else found.to(device)
    if isinstance(value, (list, tuple)):
        return type(value)(copy_state(item, device) for item in value)
    if isinstance(value, Mapping):
        return {key: copy_state(item, device) for key, item in value.items()}
    return value
