"""Weight aligning (WA.

Zhao et al. 2020, Maintaining Discrimination and Fairness in Class Incremental Learning).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from tmln.distributed.process_group import gather_full, is_sharded, local_part, local_shard
from tmln.methods import BuildContext, Features, Guide, Settings, TaskContext, Weights
from tmln.methods.weight_copies import check_finite, trained_tensors
from tmln.optim.state import state_dtype


class AlignedSettings(Settings):
    """Settings of w_new <- gamma * w_new."""

    lengthen: bool = Field(
        False,
        description="also lengthen the new classes' rows where they are shorter, as the formula says; otherwise "
        "gamma is at most 1",
        json_schema_extra={"search": [False, True]},
    )
    positive: bool = Field(
        False,
        description="clip rows at 0 after every step, so that with positive features longer rows give larger outputs",
        json_schema_extra={"search": [False, True]},
    )
    layer: str | None = Field(
        None, description="the nn.Linear whose rows are scaled, by name; the one that gives the output unless given"
    )


def compute_alignment(weight: Tensor, old: Sequence[int], new: Sequence[int]) -> float:
    """Return mean row norm of old classes / mean row norm of new ones; 1 if there are none.

    >>> round(compute_alignment(torch.tensor([[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]]), [0, 1], [2]), 6)
    0.3
    """
    norms = weight.detach().to(state_dtype(weight)).norm(dim=1)
    before, now = (float(norms[list(rows)].mean()) if rows else 0.0 for rows in (old, new))
    return before / now if before > 0 and now > 0 else 1.0


class AlignedWeights(Weights[AlignedSettings]):
    """w_new <- gamma * w_new for the new classes' rows of the last layer, at a task's end.

    Afterwards new and old rows have the same mean norm; biases do not change. Training and all
    other components continue from the scaled rows. Where the new rows are shorter, gamma is 1
    unless ``lengthen`` is set.
    """

    name = "aligned"
    supports_fsdp = True
    Settings = AlignedSettings
    state_names = ("head",)
    needs_boundary = True
    active_settings: ClassVar[Mapping[str, Any]] = {"positive": True}
    changed_settings: ClassVar[Mapping[str, Any]] = {"positive": False}
    fixed_memory_terms = ()
    guide = Guide(
        equation=r"w_{\text{new}} \leftarrow \gamma \, w_{\text{new}}, \quad \gamma = "
        r"\min\left(1, \frac{\mathrm{mean} \| w_{\text{old}} \|}{\mathrm{mean} \| w_{\text{new}} \|}\right)",
        origin="WA: Zhao et al. 2020, Maintaining Discrimination and Fairness in Class Incremental Learning.",
        cost="Nothing: it goes by the weights as they are.",
        use="Where the rows of new classes have become longer than the old ones; without a memory, too.",
        avoid="Where they are the shorter ones, as after few epochs: there is nothing to scale then. The boundary's "
        "diagnostics tell gamma.",
    )

    def __init__(self, settings: AlignedSettings, context: BuildContext) -> None:
        super().__init__(settings, context)
        self.head = ""  # the layer's name, valid also after growth or loading

    def begin(self, context: TaskContext) -> None:
        layer = Features(self.settings.layer, "weights.layer", linear=True).find(self.model, context.example_inputs())
        self.head = next(name for name, module in self.model.named_modules() if module is layer)

    @property
    def _rows(self) -> Tensor:
        found = self.model.get_submodule(self.head).weight
        assert isinstance(found, Tensor)
        return found

    @torch.no_grad()
    def after_step(self) -> None:
        if self.settings.positive:
            local_part(self._rows).clamp_(min=0.0)

    @torch.no_grad()
    def end(self, context: TaskContext) -> None:
        check_finite(trained_tensors(self.model), "the solution")
        new = [label for label in context.classes if label not in context.known]
        rows = self._rows
        gamma = compute_alignment(gather_full(rows), context.known, new)
        if not self.settings.lengthen:
            gamma = min(gamma, 1.0)
        chosen = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        chosen[new] = True
        local_part(rows)[local_shard(chosen, rows) if is_sharded(rows) else chosen] *= gamma
        self.diagnostics = {"new rows scaled by": gamma}
