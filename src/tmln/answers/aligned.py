"""Weight aligning (WA: Zhao et al. 2020, Maintaining Discrimination and Fairness in Class Incremental Learning)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.answers.memory import LayerSettings
from tmln.curvature.ranks import whole
from tmln.parts import Answer, Beside, Features, Given, Guide, Lesson, Term


class AlignedSettings(LayerSettings):
    """Of o_new <- gamma * o_new."""

    lengthen: bool = Field(
        False,
        description="scale the new classes' rows also where they are the shorter ones, as the formula says; else "
        "gamma is at most 1",
        json_schema_extra={"search": [False, True]},
    )


def alignment(weight: Tensor, old: Sequence[int], new: Sequence[int]) -> float:
    """gamma = mean norm of the old classes' rows / mean norm of the new ones'; 1 where either has none.

    >>> round(alignment(torch.tensor([[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]]), [0, 1], [2]), 6)
    0.3
    """
    norms = weight.detach().float().norm(dim=1)
    before, now = (float(norms[list(rows)].mean()) if rows else 0.0 for rows in (old, new))
    return before / now if before > 0 and now > 0 else 1.0


class AlignedAnswer(Answer[AlignedSettings]):
    """The largest output, with the rows of the task's new classes no longer, on average, than those of the old ones.

    o_new <- gamma * (o_new - b_new) + b_new: as if the rows were scaled, biases left alone. For the answer only: the
    weights stay, and training goes on from them. The rule is against new classes that win by the length of their rows;
    where those are the shorter ones, as after few epochs, it would make them win.
    """

    name = "aligned"
    shards = True
    Settings = AlignedSettings
    saved: ClassVar[tuple[str, ...]] = ("old", "new")
    active: ClassVar[Mapping[str, Any]] = {"lengthen": True}
    needs_boundary = True
    guide = Guide(
        equation=r"o_{\text{new}} \leftarrow \gamma \, (o_{\text{new}} - b_{\text{new}}) + b_{\text{new}}, "
        r"\quad \gamma = \min\left(1, \frac{\mathrm{mean} \| w_{\text{old}} \|}{\mathrm{mean} \| "
        r"w_{\text{new}} \|}\right)",
        origin="WA: Zhao et al. 2020, Maintaining Discrimination and Fairness in Class Incremental Learning.",
        cost="Nothing: it goes by the weights as they are.",
        use="Without a memory, too, where the rows of new classes have become longer than the old ones.",
        avoid="After few epochs: new rows are the shorter ones then, and there is nothing to scale.",
    )

    def __init__(self, settings: AlignedSettings, given: Given) -> None:
        super().__init__(settings, given)
        self.features = Features(settings.layer, "answer.layer", linear=True)
        self.old: list[int] = []  # classes of earlier tasks
        self.new: list[int] = []  # of this one, met for the first time

    @classmethod
    def holds(cls, settings: Any, beside: Beside) -> list[Term] | None:
        return []

    def begin(self, lesson: Lesson) -> None:
        self.features.find(lesson.model, lesson.two_inputs())
        self.old = list(lesson.known)
        self.new = [label for label in lesson.classes if label not in lesson.known]

    def scores(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        output, _ = super().scores(model, x)
        if not self.old or not self.new:
            return output, output
        layer = self.features.layer(model, x)
        assert isinstance(layer, nn.Linear)
        gamma = alignment(whole(layer.weight), self.old, self.new)
        if gamma > 1 and not self.settings.lengthen:
            return output, output
        bias = torch.zeros_like(output[0]) if layer.bias is None else whole(layer.bias)
        scores, new = output.clone(), self.new
        scores[:, new] = gamma * (output[:, new] - bias[new]) + bias[new]
        return output, scores
