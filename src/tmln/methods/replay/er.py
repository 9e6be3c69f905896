"""Experience replay (Rolnick et al. 2019; Chaudhry et al. 2019): stored samples join the batch, one mean over all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Batch, Features, Growth, Guide, MemoryConditions, MemoryTerm, Replay, Settings, TaskContext
from tmln.methods.replay.balance import Frequencies, balanced_rule
from tmln.methods.replay.herding import Exemplars, choose
from tmln.methods.replay.reservoir import Reservoir


class ERSettings(Settings):
    """Of a memory of M samples, from which some join every batch."""

    capacity: int = Field(500, ge=1, description="samples kept (M); for no memory use replay 'none'")
    batch: int | None = Field(None, ge=0, description="samples replayed a step; as many as current ones unless given")
    fill: Literal["end", "online", "every-epoch"] = Field(
        "end",
        description="when the task's samples are offered: once at its end (Algorithm 1), or after each step of the "
        "first epoch, or of every epoch",
    )
    balance: float = Field(
        0.0,
        ge=0,
        description="b: the loss takes logits + b*log(prior) from the second task on, where the prior is how often a "
        "class comes; 0 is off",
        json_schema_extra={"later": True},
    )
    selection: Literal["reservoir", "herding"] = Field(
        "reservoir",
        description="what is kept: a uniform sample; or, chosen at a task's end, as many of each class, those "
        "whose mean feature is nearest to the class's (iCaRL)",
        json_schema_extra={"later": True},
    )
    layer: str | None = Field(
        None,
        description="for herding: the layer whose input is the features, by name; the last linear one unless given",
        json_schema_extra={"later": True},
    )
    path: str | None = Field(
        None,
        exclude=True,  # where samples are is no part of what a run is: neither its name nor its bits depend on it
        description="a folder for memories larger than RAM, in which each makes one of its own",
    )


M = TypeVar("M", bound=ERSettings)


class MemoryReplay(Replay[M]):
    """A reservoir that is filled at the task's end or step by step, and drawn from at every step."""

    state_names: ClassVar[tuple[str, ...]] = ("memory",)
    outputs: ClassVar[tuple[str, ...]] = ()  # fields of the memory that have a value for each output of the model
    memory: Reservoir

    def __init__(self, settings: M, seed: int) -> None:
        super().__init__(settings, seed)
        herding = settings.selection == "herding"
        if herding and settings.fill != "end":
            raise ValueError(
                f"replay.selection = 'herding' chooses at a task's end, but replay.fill = {settings.fill!r}: "
                "set replay.fill=end"
            )
        self.memory = (Exemplars if herding else Reservoir)(settings.capacity, seed, path=settings.path)
        self.features = Features(settings.layer, "replay.layer")
        self.frequencies = Frequencies()
        self.needs_boundary = settings.fill == "end"

    @classmethod
    def guide_for(cls, settings: Any) -> Guide | None:
        if cls.guide is None or not settings.balance:
            return cls.guide
        origin = f"{cls.guide.origin} The prior in the loss: Menon et al. 2021, logit adjustment."
        return replace(cls.guide, equation=balanced_rule(cls.guide.equation), origin=origin)

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return [MemoryTerm("memory", "samples", settings.capacity)]

    def grow(self, growth: Growth) -> None:
        super().grow(growth)
        for field in self.outputs:  # a class that was not there had no logit: as one that was closed
            self.memory.widen(field, growth.after, -torch.inf)

    def begin(self, context: TaskContext) -> None:
        if isinstance(self.memory, Exemplars):
            self.features.find(
                context.model, context.example_inputs()
            )  # what cannot be found is told before it is needed
        if self.settings.balance:
            stored = [y for (y,) in self.memory.batches(context.eval_batch_size, ("y",))]
            self.frequencies = Frequencies()
            if stored:
                self.frequencies.begin(context.classes, torch.cat(stored).cpu())

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        output = model(batch.x)
        return nn.functional.cross_entropy(self._scored(output, batch.y, batch.current), batch.y), output

    def _scored(self, output: Tensor, y: Tensor, current: int) -> Tensor:
        """The output as the cross entropy takes it, of which ``current`` samples with ``y`` are the task's."""
        return self.frequencies.adjusted(output, y, current, self.settings.balance)

    def state_dict(self) -> dict[str, Any]:
        extra = {"frequencies": self.frequencies.state_dict()} if self.settings.balance else {}
        return {**super().state_dict(), **extra}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self.settings.balance:
            self.frequencies.load_state_dict(state["frequencies"])

    def draw(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
        drawn = self._drawn(len(x))
        return (drawn["x"], drawn["y"], {}) if drawn else (x[:0], y[:0], {})

    def _drawn(self, current: int) -> dict[str, Tensor]:
        count = current if self.settings.batch is None else self.settings.batch
        return self.memory.draw(count) if count and len(self.memory) else {}

    def after_step(self, x: Tensor, y: Tensor, output: Tensor, epoch: int) -> None:
        if self.settings.fill == "every-epoch" or (self.settings.fill == "online" and epoch == 0):
            self.memory.add(x, y, **self._fields(output))

    def end(self, context: TaskContext) -> None:
        if isinstance(self.memory, Exemplars):
            choose(self.memory, context, self.features, partial(self._fields_at_end, context))
        elif self.settings.fill == "end":
            for x, y in context.samples():
                self.memory.add(x, y, **self._fields_at_end(context, x, y))

    def _fields(self, output: Tensor) -> dict[str, Any]:
        return {}

    def _fields_at_end(self, context: TaskContext, x: Tensor, y: Tensor) -> dict[str, Any]:
        return {}


class ER(MemoryReplay[ERSettings]):
    """Mean cross entropy over current and replayed samples together."""

    name = "er"
    supports_fsdp = True
    Settings = ERSettings
    off_settings: ClassVar[Mapping[str, Any] | None] = {"batch": 0}
    changed_settings: ClassVar[Mapping[str, Any]] = {"batch": 3}
    guide = Guide(
        equation=r"\mathcal{L} = \frac{1}{n+m} \left( \sum_{i \in \text{batch}} \mathrm{CE}(f(x_i), y_i) + "
        r"\sum_{j \in \text{memory}} \mathrm{CE}(f(x_j), y_j) \right)",
        origin="Rolnick et al. 2019; Chaudhry et al. 2019. The reservoir: Vitter 1985, algorithm R.",
        cost="As many samples again pass through the model in every step (`replay.batch` says otherwise), "
        "and the memory.",
        use="First of all: it is the simplest rule that keeps many classes under one head, and it goes under any step.",
        avoid="Where no sample may be stored; where all data fit into the memory, so that joint training is at hand.",
    )
