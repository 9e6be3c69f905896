"""The TMLN step in a recipe: its task boundary takes the Fisher diagonal of the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from tmln.curvature import diagonal_fisher
from tmln.optim.tmln import TMLN
from tmln.parts import Lesson, Settings, Step
from tmln.replay.reservoir import Reservoir


class TMLNSettings(Settings):
    damping: float = Field(
        0.1, gt=0, description="lambda", json_schema_extra={"search": {"low": 0.001, "high": 10.0, "log": True}}
    )
    trajectory: float = Field(
        1.0, ge=0, description="gamma", json_schema_extra={"search": {"low": 0.01, "high": 100.0, "log": True}}
    )
    geometry: Literal["fisher", "euclidean", "euclidean-score"] = Field("fisher", description="where F is used")
    form: Literal["scaled", "proximal"] = Field("scaled", description="equation 5, or the appendix's form")
    eps: float = Field(
        1e-8,
        gt=0,
        description="epsilon in the score",
        json_schema_extra={"search": {"low": 1e-08, "high": 0.001, "log": True}},
    )
    momentum: float = Field(0.0, ge=0, lt=1, description="mu")
    weight_decay: float = Field(0.0, ge=0, description="L2 decay, added to the gradient")
    clip_norm: float | None = Field(None, gt=0, description="clip the norm of the gradient")
    score_fisher: Literal["previous", "current"] = Field("previous", description="the F that normalises a score")
    score_max: Literal["global", "tensor"] = Field("global", description="scores are divided by this maximum")
    match_base_lr: bool = Field(False, description="multiply lr by lambda, so that task 1 is SGD at lr")
    fisher_refresh_every: int = Field(0, ge=0, description="steps between new F within a task; 0 is at boundaries only")


class TMLNStep(Step[TMLNSettings]):
    """theta <- theta - eta*g / (F + lambda + gamma*S-bar)."""

    name = "tmln"
    Settings = TMLNSettings
    saved = ("optimizer", "steps")
    needs_boundary = True
    off: ClassVar[Mapping[str, Any] | None] = {"damping": 1.0, "trajectory": 0.0, "geometry": "euclidean"}
    optimizer: TMLN

    def __init__(
        self, settings: TMLNSettings, model: nn.Module, lr: float, seed: int, memory: Reservoir | None = None
    ) -> None:
        super().__init__(settings, model, lr, seed, memory)
        options = settings.model_dump(exclude={"match_base_lr", "fisher_refresh_every"})
        lr = lr * settings.damping if settings.match_base_lr else lr
        self.optimizer = TMLN(model.named_parameters(), lr, **options)
        self.steps = 0

    @property
    def rate(self) -> float:
        return super().rate / (1.0 if self.settings.form == "proximal" else self.settings.damping)

    def step(self, model: nn.Module, prepare: Callable[[Tensor], Tensor]) -> None:
        self.optimizer.step()
        self.steps += 1
        every = self.settings.fisher_refresh_every
        if every and self.steps % every == 0 and self.memory:
            self.optimizer.refresh(diagonal_fisher(model, _prepared(self.memory, prepare), progress=False))

    def end(self, lesson: Lesson) -> None:
        if self.settings.geometry == "euclidean":
            self.optimizer.consolidate()
            return
        # without a memory the metric is that of the task just learned
        batches = _prepared(self.memory, lesson.prepare) if self.memory else lesson.batches()
        self.optimizer.consolidate(diagonal_fisher(lesson.model, batches, progress=False))


def _prepared(memory: Reservoir, prepare: Callable[[Tensor], Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    return ((prepare(x), y) for x, y in memory.batches(256))
