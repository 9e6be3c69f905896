"""The base of replay with a memory: filled at task ends or in steps, drawn from in every step.

With logit adjustment (Menon et al. 2021) the replay loss takes logits + balance*log(prior). Half of
a batch is of the newest classes, and all older classes share the other half. With the class
frequencies in the loss, the weights need not learn them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Batch, Features, Growth, Guide, MemoryConditions, MemoryTerm, Replay, Settings, TaskContext
from tmln.methods.replay.class_balanced import ClassBalancedReservoir, GreedyReservoir
from tmln.methods.replay.herding import Exemplars, herd_task
from tmln.methods.replay.reservoir import Reservoir


def compute_prior(
    task: Sequence[int], shares: Mapping[int, float], current: int, replayed: int, outputs: int
) -> Tensor:
    """Return n/(n+m) uniform over the task's classes + m/(n+m) the memory's label shares.

    >>> compute_prior((2, 3), {0: 0.6, 1: 0.4}, 8, 8, 5)
    tensor([0.3000, 0.2000, 0.2500, 0.2500, 0.0000])
    """
    prior = [0.0] * outputs
    for label in task:
        prior[label] += current / (current + replayed) / len(task)
    for label, share in shares.items():
        prior[label] += replayed / (current + replayed) * share
    return torch.tensor(prior)


def format_balanced_rule(equation: str) -> str:
    r"""Return a loss in LaTeX with f + b*log(prior) in the cross entropies of labels.

    >>> format_balanced_rule(r"\mathrm{CE}(f(x), y) + \mathrm{MSE}(f(x'), z')")
    "\\mathrm{CE}(f(x) + b \\log \\text{prior}, y) + \\mathrm{MSE}(f(x'), z')"
    """
    return re.sub(r"(f\([^)]*\)), y", r"\1 + b \\log \\text{prior}, y", equation)


def adjust_logits(output: Tensor, y: Tensor, prior: Tensor, strength: float) -> Tensor:
    """Return ``output + strength*log(prior)``; classes without a prior become -inf.

    A class in the batch without a prior (at a blurry boundary) counts as one sample of the batch.
    """
    prior = prior.to(output.device)
    met = torch.zeros_like(prior, dtype=torch.bool)
    met[y] = True
    prior = torch.where(met & (prior == 0), 1 / len(y), prior)
    return output + strength * prior.log().to(output.dtype)


class Frequencies:
    """The classes of the task and the label shares of the memory, set when the task begins."""

    def __init__(self) -> None:
        self.task: list[int] = []
        self.shares: dict[int, float] = {}  # empty: there was nothing to replay, and nothing is adjusted

    def begin(self, task: Sequence[int], labels: Tensor) -> None:
        """Set the task's classes and the label shares of the memory."""
        found, counts = labels.unique(return_counts=True)
        self.task = sorted(set(task))
        self.shares = {label: count / len(labels) for label, count in zip(found.tolist(), counts.tolist(), strict=True)}

    def adjust(self, output: Tensor, y: Tensor, current: int, strength: float) -> Tensor:
        """Return the logits for the loss; of the samples, ``current`` are the task's."""
        if not strength or not self.shares:
            return output
        prior = compute_prior(self.task, self.shares, current, len(y) - current, output.shape[1])
        return adjust_logits(output, y, prior, strength)

    def state_dict(self) -> dict[str, object]:
        """Return both."""
        return {"task": list(self.task), "shares": dict(self.shares)}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Load both."""
        task, shares = state["task"], state["shares"]
        assert isinstance(task, list)
        assert isinstance(shares, Mapping)
        self.task, self.shares = list(task), {int(label): float(share) for label, share in shares.items()}


class MemorySettings(Settings):
    """Settings of a memory of M samples, some of which join every batch."""

    capacity: int = Field(500, ge=1, description="samples kept (M); without a memory, use replay 'none'")
    batch: int | None = Field(None, ge=0, description="samples replayed a step; as many as current ones unless given")
    fill: Literal["end", "online", "every-epoch"] = Field(
        "end",
        description="when samples are offered to the memory: at the task's end (Algorithm 1), or after each step of "
        "the first epoch, or of every epoch",
    )
    balance: float = Field(
        0.0,
        ge=0,
        description="b: from the second task on the loss takes logits + b*log(prior), the prior being the class "
        "frequency in the batch; 0 is off",
        json_schema_extra={"later": True},
    )
    selection: Literal["reservoir", "class-balanced", "greedy", "herding"] = Field(
        "reservoir",
        description="a uniform sample; or equally many of each class: a uniform sample of it, its first samples "
        "(GDumb), or, selected at a task's end, those whose mean feature is nearest to the class's (iCaRL)",
        json_schema_extra={"later": True},
    )
    passes: Literal["together", "separate"] = Field(
        "together",
        description="current and replayed samples go through the model as one batch, or each draw by itself; with "
        "batch norm they differ",
        json_schema_extra={"later": True},
    )
    layer: str | None = Field(
        None,
        description="for herding: name of the layer whose input is the features; the last linear layer unless given",
        json_schema_extra={"later": True},
    )
    path: str | None = Field(
        None,
        exclude=True,  # not part of a run's configuration: neither its hash nor its bits depend on it
        description="a folder for memories larger than RAM; each makes its own folder in it",
    )


M = TypeVar("M", bound=MemorySettings)
SELECTIONS: Mapping[str, type[Reservoir]] = {
    "reservoir": Reservoir,
    "class-balanced": ClassBalancedReservoir,
    "greedy": GreedyReservoir,
    "herding": Exemplars,
}


class MemoryReplay(Replay[M]):
    """Replay from a memory; the loss is the mean cross entropy of all samples together."""

    state_names: ClassVar[tuple[str, ...]] = ("memory",)
    per_class_fields: ClassVar[tuple[str, ...]] = ()  # of the memory: a value for each output
    memory: Reservoir

    def __init__(self, settings: M, seed: int) -> None:
        super().__init__(settings, seed)
        if settings.selection == "herding" and settings.fill != "end":
            raise ValueError(
                f"replay.selection = 'herding' chooses at a task's end, but replay.fill = {settings.fill!r}: "
                "set replay.fill=end"
            )
        self.memory = SELECTIONS[settings.selection](settings.capacity, seed, path=settings.path)
        self.features = Features(settings.layer, "replay.layer")
        self.frequencies = Frequencies()
        self.needs_boundary = settings.fill == "end"

    def _refuse_balance(self, reason: str) -> None:
        """Raise if ``balance`` is set, where the loss has no softmax that it could adjust."""
        if self.settings.balance:
            raise ValueError(
                f"replay.balance = {self.settings.balance:g} adjusts a softmax over all classes, and replay "
                f"{self.name!r} {reason}: set replay.balance=0"
            )

    @classmethod
    def guide_for(cls, settings: Any) -> Guide | None:
        if cls.guide is None or not settings.balance:
            return cls.guide
        origin = f"{cls.guide.origin} The prior in the loss: Menon et al. 2021, logit adjustment."
        return replace(cls.guide, equation=format_balanced_rule(cls.guide.equation), origin=origin)

    @classmethod
    def refuse_task_heads(cls, settings: Any) -> str:
        return "with replay.passes=separate does not pass a batch whole" if settings.passes == "separate" else ""

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return [MemoryTerm("memory", "samples", settings.capacity)]

    def grow(self, growth: Growth) -> None:
        super().grow(growth)
        for field in self.per_class_fields:  # a new class had no logit: like a closed one
            self.memory.widen(field, growth.after, -torch.inf)

    def relabel(self, into: Mapping[int, int | None]) -> None:
        self.memory.relabel(into)

    def begin(self, context: TaskContext) -> None:
        if isinstance(self.memory, Exemplars):
            self.features.find(context.model, context.example_inputs())  # fail before training
        if self.settings.balance:
            stored = [y for (y,) in self.memory.batches(context.eval_batch_size, ("y",))]
            self.frequencies = Frequencies()
            if stored:
                self.frequencies.begin(context.classes, torch.cat(stored).cpu())

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        output = self._forward(model, batch)
        return nn.functional.cross_entropy(self._adjust_logits(output, batch.y, batch.current), batch.y), output

    def _forward(self, model: nn.Module, batch: Batch, *sizes: int) -> Tensor:
        """Return the output for the batch; ``sizes``: of all replayed draws but the last."""
        rows = [batch.current, *sizes]
        parts = [part for part in batch.x.split([*rows, len(batch.y) - sum(rows)]) if len(part)]
        if self.settings.passes == "together" or len(parts) == 1:
            output: Tensor = model(batch.x)
            return output
        return torch.cat([model(part) for part in parts])

    def _adjust_logits(self, output: Tensor, y: Tensor, current: int) -> Tensor:
        """Return the logits for the cross entropy; ``current`` of the samples are the task's."""
        return self.frequencies.adjust(output, y, current, self.settings.balance)

    def state_dict(self) -> dict[str, Any]:
        extra = {"frequencies": self.frequencies.state_dict()} if self.settings.balance else {}
        return {**super().state_dict(), **extra}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if missing := {"x", "y"} - self.memory.field_names if len(self.memory) else set():
            raise ValueError(f"the saved memory has no field {min(missing)!r}; save it again, or use another copy")
        if self.settings.balance:
            self.frequencies.load_state_dict(state["frequencies"])

    def draw(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
        drawn = self._draw_fields(len(x))
        return (drawn["x"], drawn["y"], {}) if drawn else (x[:0], y[:0], {})

    def _draw_fields(self, current: int) -> dict[str, Tensor]:
        count = current if self.settings.batch is None else self.settings.batch
        return self.memory.draw(count) if count and len(self.memory) else {}

    def after_step(self, x: Tensor, y: Tensor, output: Tensor, epoch: int) -> None:
        if self.settings.fill == "every-epoch" or (self.settings.fill == "online" and epoch == 0):
            self.memory.add(x, y, **self._get_fields(output))

    def end(self, context: TaskContext) -> None:
        if isinstance(self.memory, Exemplars):
            herd_task(self.memory, context, self.features, partial(self._get_fields_at_end, context))
        elif self.settings.fill == "end":
            for x, y in context.samples():
                self.memory.add(x, y, **self._get_fields_at_end(context, x, y))

    def _get_fields(self, output: Tensor) -> dict[str, Any]:
        return {}

    def _get_fields_at_end(self, context: TaskContext, x: Tensor, y: Tensor) -> dict[str, Any]:
        return {}
