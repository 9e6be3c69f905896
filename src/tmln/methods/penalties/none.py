"""No penalty, the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tmln.methods import Guide, Penalty, Settings


class NoPenalty(Penalty[Settings]):
    """No penalty."""

    name = "none"
    supports_fsdp = True
    off_settings: ClassVar[Mapping[str, Any] | None] = {}
    active_settings: ClassVar[Mapping[str, Any]] = {}
    changed_settings: ClassVar[Mapping[str, Any]] = {}
    modifies_gradient = False
    fixed_memory_terms = ()
    guide = Guide(
        equation=r"\mathcal{L} = \mathcal{L}_{\text{replay}}",
        origin="",
        cost="Nothing.",
        use="Wherever replay or the step protect; it is the default.",
        avoid="Where there is neither a memory nor a step that protects.",
    )
