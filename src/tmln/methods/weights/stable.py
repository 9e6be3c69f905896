"""CLS-ER's stable model predicts (Arani et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import ClassVar

from torch import Tensor

from tmln.methods import BuildContext, Guide, Settings, TaskContext, Weights
from tmln.methods.weight_copies import check_finite, swap_in, trained_tensors


class StableWeights(Weights[Settings]):
    """The slow average of the penalty ``consistency`` predicts.

    Training uses the last step's weights.
    """

    name = "stable"
    supports_fsdp = True
    required_components: ClassVar[Mapping[str, str]] = {"penalty": "consistency"}
    is_prediction_only = True
    fixed_memory_terms = ()
    guide = Guide(
        equation=r"\theta_{\text{answer}} = \text{the slow average of } \mathtt{consistency}",
        origin="Arani et al. 2022, Learning Fast, Learning Slow (CLS-ER).",
        cost="Nothing beyond what `consistency` holds.",
        use="With the penalty `consistency`, which it needs.",
        avoid="With anything else: it is refused.",
    )

    def __init__(self, settings: Settings, context: BuildContext) -> None:
        super().__init__(settings, context)
        self.penalty = context.components["penalty"]
        if not hasattr(self.penalty, "stable"):
            raise ValueError(
                f"weights 'stable' are kept by the penalty 'consistency', but the penalty is {self.penalty.name!r}: "
                "choose penalty 'consistency', or weights 'average'"
            )

    @property
    def _stable(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = self.penalty.stable  # type: ignore[attr-defined]
        return found

    def end(self, context: TaskContext) -> None:
        check_finite(self._stable, "the stable average")

    def prediction_weights(self) -> AbstractContextManager[None]:
        return swap_in(self._stable, trained_tensors(self.model))
