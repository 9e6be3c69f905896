"""Steps around another step: they change the gradient and leave the update to the inner one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import torch
from pydantic import ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo
from torch import nn

from tmln.methods import INNER, Batch, MemoryConditions, MemoryTerm, Settings, Step, TaskContext, read_settings
from tmln.methods.registry import FAMILIES
from tmln.user_code import is_foreign


class WrappingSettings(Settings):
    """Settings that contain those of the inner step, as ``inner.NAME``."""

    model_config = ConfigDict(frozen=True, extra="allow")
    inner: str = Field("sgd", description="the step that takes the gradient, any by name; its settings: inner.NAME")

    @model_validator(mode="after")
    def _refuse_unknown(self) -> WrappingSettings:
        for key in self.model_extra or {}:
            if not key.startswith(f"{INNER}."):
                raise ValueError(f"there is no setting {key!r}")
        return self

    def inside(self) -> dict[str, Any]:
        """Return the inner step's settings."""
        return {key.removeprefix(f"{INNER}."): value for key, value in (self.model_extra or {}).items()}

    def resolve_inner(self) -> tuple[type[Step[Any]], Any]:
        """Return the inner step's class and its validated settings."""
        kind = FAMILIES["step"].find(self.inner)
        assert issubclass(kind, Step)
        return kind, read_settings(kind, self.inside())


W = TypeVar("W", bound=WrappingSettings)


class Wrapping(Step[W]):
    """A step that passes a changed closure, and everything else as it is, to ``inner``."""

    is_wrapper = True
    hash_includes_inner: ClassVar[bool] = True  # a run's hash holds all inner settings, defaults too
    state_names: ClassVar[tuple[str, ...]] = ("inner",)

    def make_optimizer(self, model: nn.Module, lr: float, seed: int) -> torch.optim.Optimizer:
        kind, inside = self.settings.resolve_inner()
        self.inner = kind(inside, model, lr, seed, self.memory)
        self.memory = self.inner.memory  # the replay's, or that of a step further in
        self.tracks_path = self.inner.tracks_path
        self.needs_boundary = type(self).needs_boundary or self.inner.needs_boundary
        return self.inner.optimizer

    @classmethod
    def resolve_inner_settings(cls, settings: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        if is_foreign(settings.inner):
            return dict(given)  # validated when it is built
        kind = FAMILIES["step"].find(settings.inner)
        values: dict[str, Any] = read_settings(kind, given).model_dump()
        defaults = read_settings(kind, {}).model_dump()
        return values if cls.hash_includes_inner or values != defaults else {}

    @classmethod
    def supports_fsdp_at(cls, settings: Any) -> bool:
        kind, inside = settings.resolve_inner()
        return cls.supports_fsdp and kind.supports_fsdp_at(inside)

    @classmethod
    def setting_fields(cls, settings: Any) -> dict[str, FieldInfo]:
        kind, inside = settings.resolve_inner()
        inner = {f"{INNER}.{name}": field for name, field in kind.setting_fields(inside).items()}
        return {**super().setting_fields(settings), **inner}

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        kind, inside = settings.resolve_inner()
        terms = kind.memory_terms(inside, replace(conditions, gradient_modified=True))
        return None if terms is None else [replace(term, name=f"{INNER}.{term.name}") for term in terms]

    @classmethod
    def lr_factor(cls, settings: Any) -> float:
        kind, inside = settings.resolve_inner()
        return float(kind.lr_factor(inside))

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
