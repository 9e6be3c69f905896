"""Training from scratch on the memory at each task's end: GDumb (Prabhu et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_modes
from tmln.methods import Closure, Guide, MemoryConditions, MemoryTerm, Settings, Step, TaskContext, choose_heads
from tmln.methods.fine_tuning import set_training_mode
from tmln.methods.replay.reservoir import Reservoir
from tmln.methods.weight_copies import all_tensors, assign
from tmln.progress import track
from tmln.seeds import seed_of


class RetrainSettings(Settings):
    """Settings of the training on the memory; the rate is the learner's, decayed by a cosine."""

    epochs: int = Field(50, ge=1, description="passes over the memory at each task's end")
    batch: int = Field(16, ge=1, description="samples of a step", json_schema_extra={"search": [16, 32, 64]})
    momentum: float = Field(
        0.9,
        ge=0,
        lt=1,
        description="momentum of the training",
        json_schema_extra={"search": {"low": 0.0, "high": 0.99}},
    )
    weight_decay: float = Field(0.0, ge=0, description="L2 decay, added to the gradient; the authors have 1e-6")


LEAST = 0.01  # of the rate, at the end of the cosine, as by the authors


def cosine_factor(step: int, steps: int) -> float:
    """Return the factor of the rate: from 1 to ``LEAST`` along half a cosine."""
    return LEAST + (1 - LEAST) * (1 + math.cos(math.pi * step / steps)) / 2


class RetrainStep(Step[RetrainSettings]):
    """Trains nothing on the stream; at each task's end, from scratch on the memory alone."""

    name = "retrain"
    Settings = RetrainSettings
    state_names = ("start", "generator")
    weight_copy_names: ClassVar[tuple[str, ...]] = ("start",)
    needs_boundary = True
    trains_at_end = True
    required_components: ClassVar[Mapping[str, str]] = {"replay": "er"}
    changed_settings: ClassVar[Mapping[str, Any]] = {"momentum": 0.5}
    guide = Guide(
        equation=r"\theta_k = \mathrm{SGD}(\theta_0; \, \text{memory after task } k)",
        origin="Prabhu et al. 2020, GDumb. One cosine in place of warm restarts; without CutMix.",
        cost="A copy of the initial weights, and a training on the memory at each task's end.",
        use="As a baseline that asks what the memory alone is worth: what does not beat it learns nothing from the "
        "stream.",
        avoid="As a method: all samples that are not stored are lost.",
    )

    def make_optimizer(self, model: nn.Module, lr: float, seed: int) -> torch.optim.Optimizer:
        if self.memory is None:
            raise ValueError("step 'retrain' trains on a memory, and this method has none: add one, e.g. replay=er")
        self.model = model
        self.start = {name: t.detach().clone() for name, t in all_tensors(model).items()}
        self.generator = torch.Generator().manual_seed(seed_of(seed, "retrain"))
        chosen = self.settings
        return torch.optim.SGD(model.parameters(), lr, chosen.momentum, weight_decay=chosen.weight_decay)

    @classmethod
    def trains_at(cls, settings: Any, index: int) -> bool:
        return False

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return [MemoryTerm("start", "model")]

    @property
    def named_tensors(self) -> Mapping[str, Tensor]:
        return all_tensors(self.model)

    def step(self, closure: Closure, context: TaskContext) -> None:
        closure()

    def end(self, context: TaskContext) -> None:
        assert self.memory is not None
        assign(self.start, all_tensors(self.model))
        with preserve_modes(self.model):
            set_training_mode(self.model)
            self._train(self.memory, context)

    def _train(self, memory: Reservoir, context: TaskContext) -> None:
        chosen, optimizer = self.settings, self.optimizer
        ((x, y),) = memory.batches(len(memory), ("x", "y"))
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        steps, done = chosen.epochs * -(-len(y) // chosen.batch), 0
        for _ in track(range(chosen.epochs), "training on the memory"):
            for rows in torch.randperm(len(y), generator=self.generator).split(chosen.batch):
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * cosine_factor(done, steps)
                if len(rows) > 1 or len(y) == 1:  # batch norm cannot normalise by one sample
                    inputs, labels = context.augment_batch(x[rows], y[rows], self.generator)
                    optimizer.zero_grad()
                    with choose_heads(context.model, labels):
                        F.cross_entropy(context.model(inputs), labels).backward()
                    optimizer.step()
                done += 1
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        optimizer.state.clear()
        optimizer.zero_grad()
