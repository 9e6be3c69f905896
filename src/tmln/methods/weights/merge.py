"""Merged weights (Wortsman et al. 2022; by F: Matena and Raffel 2022)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from tmln.curvature import diagonal_fisher
from tmln.curvature.preserve_state import preserve_model
from tmln.distributed.data_parallel import BatchNorm
from tmln.methods import (
    BuildContext,
    Guide,
    MemoryConditions,
    MemoryTerm,
    Settings,
    TaskContext,
    Weights,
    prepare_inputs,
    weight_sums,
)
from tmln.methods.replay.reservoir import Reservoir
from tmln.methods.weight_copies import assign, check_finite, copy_tensors, lerp_, trained_tensors
from tmln.optim.state import state_dtype
from tmln.optim.tmln import TMLN

EPS = 1e-8  # where neither solution has an importance, half of each
MAX_SAMPLES = 1024  # of the task, and of the memory, for re-estimated statistics


class MergeSettings(Settings):
    """Settings of the weighted mean of the previous and the new solution."""

    by: Literal["share", "count", "fisher", "shield"] = Field(
        "share",
        description="the new solution's part: a fixed share; 1/k at the k-th task; for each weight by F of its task "
        "against that of the tasks before; or by F + gamma*S-bar of the step 'tmln'",
    )
    share: float = Field(
        0.5, ge=0, le=1, description="the new solution's part", json_schema_extra={"search": {"low": 0.1, "high": 1.0}}
    )
    statistics: Literal["merged", "estimated"] = Field(
        "merged", description="batch norm's: merged like the weights, or re-estimated on memory and task"
    )


def merge_by_importance(old: Tensor, new: Tensor, old_importance: Tensor, new_importance: Tensor) -> Tensor:
    """Return (F_old*old + F_new*new) / (F_old + F_new), elementwise."""
    share = (new_importance + EPS) / (old_importance + new_importance + 2 * EPS)
    return torch.lerp(old, new, share)


class MergedWeights(Weights[MergeSettings]):
    """theta <- (1-a)*theta_prev + a*theta at the end of every task but the first."""

    name = "merge"
    supports_fsdp = True
    Settings = MergeSettings
    state_names = ("solution", "importance", "merged")
    weight_copy_names = ("solution",)
    needs_boundary = True
    off_settings: ClassVar[Mapping[str, Any] | None] = {"share": 1.0}
    changed_settings: ClassVar[Mapping[str, Any]] = {"share": 0.9}
    guide = Guide(
        equation=r"\theta \leftarrow (1 - a) \, \theta_{\text{prev}} + a \, \theta",
        origin="Wortsman et al. 2022; by F: Matena and Raffel 2022.",
        cost="A copy of the weights; by F, a Fisher pass and sums for every weight.",
        use="Where only the end of a task can be changed, as with models trained elsewhere.",
        avoid="Where the two solutions are not connected: look at `tmln barrier` first.",
    )

    def __init__(self, settings: MergeSettings, context: BuildContext) -> None:
        super().__init__(settings, context)
        self.solution: dict[str, Tensor] = {}
        self.importance: dict[str, Tensor] = {}
        self.merged = 0  # solutions so far
        step = context.components["step"]
        self.optimizer: torch.optim.Optimizer | None = getattr(step, "optimizer", None)
        self.memory: Reservoir | None = getattr(context.components["replay"], "memory", None)
        if settings.by == "shield" and not isinstance(self.optimizer, TMLN):
            raise ValueError(
                f"weights.by = 'shield' takes F + gamma*S-bar of the step 'tmln', but the step is {step.name!r}: "
                "choose step 'tmln', or weights.by = 'fisher'"
            )

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        found = [*weight_sums("solution"), MemoryTerm("solution", "statistics")]
        return found + (weight_sums("importance") if settings.by in ("fisher", "shield") else [])

    def end(self, context: TaskContext) -> None:
        values = trained_tensors(self.model)
        check_finite(values, "the solution")
        fisher = self._fisher(context)
        self.merged += 1
        if self.solution.keys() == values.keys():
            self._merge(values, fisher)
            if self.settings.statistics == "estimated":
                estimate_statistics(context, self.memory)
        self.importance = {
            name: F + self.importance[name] if name in self.importance else F for name, F in fisher.items()
        }
        self.solution = copy_tensors(values)

    def _fisher(self, context: TaskContext) -> dict[str, Tensor]:
        """Return F of the task at its own solution, by parameter name."""
        if self.settings.by not in ("fisher", "shield"):
            return {}
        return {
            name: F.clone() for name, F in diagonal_fisher(self.model, context.rank_batches(), progress=False).items()
        }

    def _merge(self, values: dict[str, Tensor], fisher: dict[str, Tensor]) -> None:
        share = self.settings.share if self.settings.by == "share" else 1 / self.merged
        new, shield = copy_tensors(values), self._shield()
        found = {name: t.clone() for name, t in self.solution.items() if t.shape == new[name].shape}
        lerp_(found, new, share)  # also statistics, and weights without an F
        for name in found.keys() & fisher.keys() & self.importance.keys():
            importance = self.importance[name] + shield.get(name, 0.0)
            found[name] = merge_by_importance(self.solution[name], new[name], importance, fisher[name])
        assign(found, values)

    def _shield(self) -> dict[str, Tensor]:
        """Return gamma*S-bar of the boundaries so far, by parameter name."""
        if self.settings.by != "shield" or self.optimizer is None:
            return {}
        gamma = float(self.optimizer.param_groups[0]["trajectory"])
        state = self.optimizer.state
        weights = self.model.named_parameters()
        return {
            name: gamma * state[p]["sensitivity"].to(p.device, state_dtype(p))
            for name, p in weights
            if "sensitivity" in state.get(p, {})
        }


@torch.no_grad()
def estimate_statistics(context: TaskContext, memory: Reservoir | None) -> None:
    """Re-estimate batch norm statistics as the mean over batches, half memory and half task."""
    norms = [
        module for module in context.model.modules() if isinstance(module, BatchNorm) and module.track_running_stats
    ]
    if not norms:
        return
    batches = list(_mixed_batches(context, memory))
    momenta = [module.momentum for module in norms]
    found: list[tuple[Tensor, Tensor]] = []
    with preserve_model(context.model, training=False):
        for module in norms:
            module.reset_running_stats()
            module.train()
            module.momentum = None  # a mean over all batches
        try:
            for x in batches:
                context.model(x)
            found = [(m.running_mean.clone(), m.running_var.clone()) for m in norms]  # type: ignore[union-attr]
        finally:
            for module, momentum in zip(norms, momenta, strict=True):
                module.momentum = momentum
    for module, (mean, variance) in zip(norms, found, strict=True):
        module.running_mean.copy_(mean)  # type: ignore[union-attr]
        module.running_var.copy_(variance)  # type: ignore[union-attr]


def _mixed_batches(context: TaskContext, memory: Reservoir | None) -> Iterator[Tensor]:
    """Yield model inputs; every batch has samples from all over the task and the memory."""
    half = max(1, context.eval_batch_size // 2)
    parts = [_take_evenly(context.samples())]
    if memory is not None and len(memory):
        parts.append(_take_evenly(memory.batches(context.eval_batch_size, ("x", "y"))))
    count = max(1, len(parts[0]) // half)
    for number in range(count):
        stored = torch.cat([part[number::count] for part in parts])
        if len(stored) > 1:  # one sample has no variance
            yield prepare_inputs(context.model, stored, context.prepare)


def _take_evenly(batches: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Return at most ``MAX_SAMPLES`` samples, evenly spaced."""
    x = torch.cat([x for x, _ in batches])
    return x[:: -(-len(x) // MAX_SAMPLES)]
