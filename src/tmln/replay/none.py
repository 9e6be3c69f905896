"""No replay: the batch as it comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tmln.parts import Beside, Replay, Settings, Term


class NoReplay(Replay[Settings]):
    """Nothing joins the batch; the loss is its mean cross entropy."""

    name = "none"
    off: ClassVar[Mapping[str, Any] | None] = {}

    @classmethod
    def holds(cls, settings: Any, beside: Beside) -> list[Term] | None:
        return []
