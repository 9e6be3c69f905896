"""The largest output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tmln.methods import Answer, Beside, Guide, Settings, Term


class LargestOutput(Answer[Settings]):
    """The class with the largest output."""

    name = "argmax"
    shards = True
    off: ClassVar[Mapping[str, Any] | None] = {}
    guide = Guide(
        equation=r"\hat y = \arg\max_c f_c(x)",
        origin="",
        cost="Nothing.",
        use="Unless there is a reason for another; it is the default.",
        avoid="Where the newest classes win by their frequency: look at the confusion matrix in the report.",
    )

    @classmethod
    def holds(cls, settings: Any, beside: Beside) -> list[Term] | None:
        return []
