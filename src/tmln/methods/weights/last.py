"""The weights of the last step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tmln.methods import Guide, Settings, Weights


class LastWeights(Weights[Settings]):
    """The weights of the last step predict and start the next task."""

    name = "last"
    supports_fsdp = True
    off_settings: ClassVar[Mapping[str, Any] | None] = {}
    fixed_memory_terms = ()
    guide = Guide(
        equation=r"\theta_{\text{answer}} = \theta",
        origin="",
        cost="Nothing.",
        use="Unless there is a reason for another; it is the default.",
        avoid="Where the last steps are noisy and an average costs nothing to speak of.",
    )
