"""Steps around another step: they change the gradient, and leave the move to the inner one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from pydantic import ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo
from torch import nn

from tmln.methods import INNER, Batch, MemoryConditions, MemoryTerm, Settings, Step, TaskContext, read_settings
from tmln.methods.registry import FAMILIES
from tmln.methods.replay.reservoir import Reservoir
from tmln.user_code import code_allowed, is_code


class WrappingSettings(Settings):
    """With those of the inner step among them, as ``inner.NAME``."""

    model_config = ConfigDict(frozen=True, extra="allow")
    inner: str = Field("sgd", description="the step that takes the gradient, any by name; its settings: inner.NAME")

    @model_validator(mode="after")
    def _nothing_else(self) -> WrappingSettings:
        for key in self.model_extra or {}:
            if not key.startswith(f"{INNER}."):
                raise ValueError(f"there is no setting {key!r}")
        return self

    def inside(self) -> dict[str, Any]:
        """The inner step's settings."""
        return {key.removeprefix(f"{INNER}."): value for key, value in (self.model_extra or {}).items()}

    def resolve_inner(self) -> tuple[type[Step[Any]], Any]:
        """The inner step's class and its checked settings."""
        kind = FAMILIES["step"].find(self.inner)
        assert issubclass(kind, Step)
        return kind, read_settings(kind, self.inside())


W = TypeVar("W", bound=WrappingSettings)


class Wrapping(Step[W]):
    """A step that passes everything on to ``inner``. What it does itself, it does to the closure it passes on."""

    is_wrapper = True
    hash_includes_inner: ClassVar[bool] = (
        True  # a run's name holds all settings of the inner step, also where none is given
    )
    state_names: ClassVar[tuple[str, ...]] = ("inner",)

    def __init__(self, settings: W, model: nn.Module, lr: float, seed: int, memory: Reservoir | None = None) -> None:
        super().__init__(settings, model, lr, seed, memory)
        kind, inside = settings.resolve_inner()
        self.inner = kind(inside, model, lr, seed, memory)
        self.optimizer, self.tracks_path = self.inner.optimizer, self.inner.tracks_path
        self.memory = self.inner.memory  # the replay's, or that of a step further in
        self.needs_boundary = type(self).needs_boundary or self.inner.needs_boundary

    @classmethod
    def resolve_inner_settings(cls, settings: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        if is_code(settings.inner) and not code_allowed():
            return dict(given)  # they are checked when it is made, by whoever may
        kind = FAMILIES["step"].find(settings.inner)
        values: dict[str, Any] = read_settings(kind, given).model_dump()
        usual = read_settings(kind, {}).model_dump()
        return values if cls.hash_includes_inner or values != usual else {}

    @classmethod
    def supports_fsdp_at(cls, settings: Any) -> bool:
        kind, inside = settings.resolve_inner()
        return cls.supports_fsdp and kind.supports_fsdp_at(inside)

    @classmethod
    def fields(cls, settings: Any) -> dict[str, FieldInfo]:
        kind, inside = settings.resolve_inner()
        return {
            **super().setting_fields(settings),
            **{f"{INNER}.{k}": field for k, field in kind.setting_fields(inside).items()},
        }

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        kind, inside = settings.resolve_inner()
        terms = kind.memory_terms(inside, replace(conditions, gradient_modified=True))
        return None if terms is None else [replace(term, name=f"{INNER}.{term.name}") for term in terms]

    @property
    def effective_lr(self) -> float:
        return self.inner.effective_lr

    def begin(self, context: TaskContext) -> None:
        self.inner.begin(context)

    def before_forward(self, batch: Batch, context: TaskContext) -> None:
        self.inner.before_forward(batch, context)

    def after_backward(self) -> None:
        self.inner.after_backward()

    def after_update(self) -> None:
        self.inner.after_update()

    def end(self, context: TaskContext) -> None:
        self.inner.end(context)
        self.diagnostics = dict(self.inner.diagnostics)
