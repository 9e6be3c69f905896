"""A-GEM (Chaudhry et al. 2019, Efficient Lifelong Learning, equation 11) around any other step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.curvature.untouched import untouched
from tmln.parts import Batch, Lesson, Settings, Step, read_settings
from tmln.replay.reservoir import Reservoir
from tmln.seeds import seed_of
from tmln.steps.ocar import OCARStep
from tmln.steps.sgd import SGDStep
from tmln.steps.tmln import TMLNStep
from tmln.steps.upgd import UPGDStep

INNER: dict[str, type[Step[Any]]] = {part.name: part for part in (SGDStep, TMLNStep, UPGDStep, OCARStep)}


class AGEMSettings(Settings):
    capacity: int = Field(500, ge=1, description="samples kept to check against")
    batch: int = Field(
        128,
        ge=0,
        description="samples checked a step; 0 is the inner step alone",
        json_schema_extra={"search": [32, 64, 128, 256]},
    )
    inner: Literal["sgd", "tmln", "upgd", "ocar"] = Field("sgd", description="the step that takes the gradient")


def project(gradient: list[Tensor], reference: list[Tensor]) -> list[Tensor]:
    """g - (g.r / r.r) r where g.r < 0, so that the move does not raise the memory's loss; else g itself."""
    dot = sum(float((g * r).sum()) for g, r in zip(gradient, reference, strict=True))
    norm = sum(float((r * r).sum()) for r in reference)
    if dot >= 0 or norm == 0:
        return gradient
    return [g - (dot / norm) * r for g, r in zip(gradient, reference, strict=True)]


class AGEMStep(Step[AGEMSettings]):
    """The gradient, where it works against the memory's, loses that component; then the inner step."""

    name = "a-gem"
    Settings = AGEMSettings
    saved = ("checks", "inner")
    needs_boundary = True
    off: ClassVar[Mapping[str, Any] | None] = {"batch": 0}

    def __init__(
        self, settings: AGEMSettings, model: nn.Module, lr: float, seed: int, memory: Reservoir | None = None
    ) -> None:
        super().__init__(settings, model, lr, seed, memory)
        part = INNER[settings.inner]
        self.checks = Reservoir(settings.capacity, seed_of(seed, "checks"))
        self.inner = part(read_settings(part, {}), model, lr, seed, self.checks if memory is None else memory)
        self.optimizer = self.inner.optimizer
        self.traces = self.inner.traces
        self.looked = False

    @property
    def rate(self) -> float:
        return self.inner.rate

    def begin(self, lesson: Lesson) -> None:
        self.inner.begin(lesson)

    def before_forward(self, batch: Batch, lesson: Lesson) -> None:
        self.inner.before_forward(batch, lesson)

    def look(self) -> None:
        self.looked = True
        self.inner.look()

    def step(self, lesson: Lesson) -> None:
        if not (self.settings.batch and self.checks):
            self.inner.step(lesson)
            return
        if alone := not self.looked:  # the inner step is to see the task's own gradient before it is projected
            self.inner.look()
        moving = [p for p in lesson.model.parameters() if p.grad is not None]
        gradient = [p.grad for p in moving if p.grad is not None]
        reference = self._reference(lesson, moving)
        for p, g in zip(moving, project(gradient, reference), strict=True):
            p.grad = g
        self.inner.step(lesson)
        if alone:
            self.inner.walk()

    def walk(self) -> None:
        self.looked = False
        self.inner.walk()

    def _reference(self, lesson: Lesson, moving: list[nn.Parameter]) -> list[Tensor]:
        """The gradient of the memory's loss."""
        x, y = lesson.ready(*self.checks.sample(self.settings.batch))
        with untouched(lesson.model):  # the memory's pass leaves no trace in batch statistics
            loss = nn.functional.cross_entropy(lesson.model(x), y)
            found = torch.autograd.grad(loss, moving, allow_unused=True)
        return [torch.zeros_like(p) if r is None else r for p, r in zip(moving, found, strict=True)]

    def end(self, lesson: Lesson) -> None:
        for x, y in lesson.samples():
            self.checks.add(x, y)
        self.inner.end(lesson)
        self.diagnostics = dict(self.inner.diagnostics)
