"""A backbone that learns slowly (SLCA: Zhang et al. 2023): the inner step, at two rates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import nn

from tmln.methods import INNER, Closure, Guide, MemoryConditions, MemoryTerm, TaskContext
from tmln.methods.fine_tuning import MARK, find_fine_tuning, split_groups
from tmln.methods.steps.wrapping import Wrapping, WrappingSettings


class SlowBackboneSettings(WrappingSettings):
    """Settings of ``slow-backbone``."""

    scale: float = Field(
        0.01,
        gt=0,
        allow_inf_nan=False,
        description="factor of the rate for all weights but those of the last linear layer; where the model has a"
        " backbone_lr_scale, that one is used",
        json_schema_extra={"search": [0.001, 0.01, 0.1, 1.0]},
    )


class SlowBackboneStep(Wrapping[SlowBackboneSettings]):
    """The inner step, with the rate of all weights but the last linear layer's times ``scale``."""

    name = "slow-backbone"
    Settings = SlowBackboneSettings
    off_settings: ClassVar[dict[str, Any] | None] = {"scale": 1.0}
    changed_settings: ClassVar[dict[str, Any]] = {"scale": 0.5}
    guide = Guide(
        equation=r"\eta_{\text{backbone}} = s \, \eta_{\text{head}}",
        origin="SLCA: Zhang et al. 2023, with s = 0.01.",
        cost="Nothing beyond the inner step.",
        use="To fine-tune a pre-trained backbone whose features are to stay what they are.",
        avoid="With random weights. Where the model has a `model.backbone_lr_scale`, that one decides.",
    )

    def make_optimizer(self, model: nn.Module, lr: float, seed: int) -> torch.optim.Optimizer:
        """Return the inner step's optimizer, its groups split."""
        optimizer = super().make_optimizer(model, lr, seed)
        carried = find_fine_tuning(model)
        layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        if carried is None and not layers:
            raise ValueError("step 'slow-backbone' needs a last nn.Linear, and the model has none: name another step")
        head = layers[-1] if carried is None else carried[0].get_submodule(carried[1].head)
        if self.settings.scale != 1.0 and not any(MARK in group for group in optimizer.param_groups):
            split_groups(optimizer, head, self.settings.scale)
        return optimizer

    @property
    def modifies_gradient(self) -> bool:  # type: ignore[override]  # it is the inner step's to say
        """Whether the inner step changes the gradient."""
        return self.inner.modifies_gradient

    def step(self, closure: Closure, context: TaskContext) -> None:
        """Let the inner step update the weights."""
        self.inner.step(closure, context)

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        """Return those of the inner step at the same conditions: the gradient is not changed."""
        kind, inside = settings.resolve_inner()
        terms = kind.memory_terms(inside, conditions)
        return None if terms is None else [replace(term, name=f"{INNER}.{term.name}") for term in terms]
