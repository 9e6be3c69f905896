"""The default answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tmln.methods import Answer, Guide, Settings


class LargestOutput(Answer[Settings]):
    """The class with the largest output."""

    name = "argmax"
    supports_fsdp = True
    off_settings: ClassVar[Mapping[str, Any] | None] = {}
    fixed_memory_terms = ()
    guide = Guide(
        equation=r"\hat y = \arg\max_c f_c(x)",
        origin="",
        cost="Nothing.",
        use="Unless there is a reason for another; it is the default.",
        avoid="Where the newest classes win by their frequency: look at the confusion matrix in the report.",
    )
