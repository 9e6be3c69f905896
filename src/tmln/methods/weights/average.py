"""The average of a task's iterates (Polyak and Juditsky 1992; polynomial decay.

Shamir and Zhang 2013).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from tmln.methods import (
    BuildContext,
    Growth,
    Guide,
    MemoryConditions,
    MemoryTerm,
    Settings,
    TaskContext,
    Weights,
    weight_sums,
)
from tmln.methods.weight_copies import assign, check_finite, copy_tensors, lerp_, swap_in, trained_tensors


class AverageSettings(Settings):
    """Settings of the average of the weights along a task."""

    rule: Literal["polynomial", "exponential"] = Field(
        "polynomial", description="weight of the k-th iterate: (p+1)/(k+p), or constant"
    )
    power: float = Field(
        3.0,
        ge=0,
        description="p: 0 is the mean, 3 about the task's last quarter",
        json_schema_extra={"search": {"low": 0.0, "high": 10.0}},
    )
    rate: float = Field(0.01, gt=0, le=1, description="weight of an iterate in the exponential average")
    every: int = Field(1, ge=1, description="steps between iterates that are averaged")
    take_over: Literal["average", "last"] = Field(
        "average", description="weights from which the next task starts; the average predicts in any case"
    )


def compute_share(k: int, power: float) -> float:
    """Return (p+1)/(k+p), the weight of iterate k; 1 at the first.

    >>> [round(compute_share(k, 3.0), 3) for k in (1, 2, 3)]
    [1.0, 0.8, 0.667]
    """
    return (power + 1) / (k + power)


class AverageWeights(Weights[AverageSettings]):
    """theta-bar <- theta-bar + (p+1)/(k+p) * (theta - theta-bar), k counted in the task.

    Running statistics are averaged as well. Before a task's first iterate, the current weights
    predict.
    """

    name = "average"
    supports_fsdp = True
    Settings = AverageSettings
    state_names = ("mean", "count", "steps")
    weight_copy_names = ("mean",)
    off_settings: ClassVar[Mapping[str, Any] | None] = {"rule": "exponential", "rate": 1.0}
    changed_settings: ClassVar[Mapping[str, Any]] = {"power": 0.0}
    guide = Guide(
        equation=r"\bar\theta \leftarrow \bar\theta + \frac{p+1}{k+p} (\theta - \bar\theta)",
        origin="Polyak and Juditsky 1992; polynomial decay: Shamir and Zhang 2013.",
        cost="A copy of the weights, and one pass over them a step.",
        use="With replay, nearly always: the noise of small replayed batches is averaged out (`er+`, `tmln+`, `der+`).",
        avoid="Where a task has so few steps that its last quarter is none.",
    )

    def __init__(self, settings: AverageSettings, context: BuildContext) -> None:
        super().__init__(settings, context)
        self.mean: dict[str, Tensor] = {}
        self.count = 0  # iterates in the average; 0: the current weights predict
        self.steps = 0  # of the task
        self._moving: dict[str, Tensor] = {}

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return [*weight_sums("mean"), MemoryTerm("mean", "statistics")]

    def grow(self, growth: Growth) -> None:
        super().grow(growth)
        self._moving = {}

    def begin(self, context: TaskContext) -> None:
        self.count, self.steps, self._moving = 0, 0, trained_tensors(self.model)

    def after_step(self) -> None:
        self.steps += 1
        if self.steps % self.settings.every:
            return
        self.count += 1
        values = self._values()
        if self.count == 1 or self.mean.keys() != values.keys():
            self.mean = copy_tensors(values)
        elif self.settings.rule == "polynomial":
            lerp_(self.mean, values, compute_share(self.count, self.settings.power))
        else:
            lerp_(self.mean, values, self.settings.rate)

    def end(self, context: TaskContext) -> None:
        if not self.count:
            return
        check_finite(self.mean, "the average")
        if self.settings.take_over == "average":
            assign(self.mean, self._values())
            self.count = 0

    def prediction_weights(self) -> AbstractContextManager[None]:
        return swap_in(self.mean, self._values()) if self.count else nullcontext()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._moving = {}

    def _values(self) -> dict[str, Tensor]:
        self._moving = self._moving or trained_tensors(self.model)
        return self._moving
