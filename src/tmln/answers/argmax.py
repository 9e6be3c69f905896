"""The largest output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tmln.parts import Answer, Beside, Settings, Term


class LargestOutput(Answer[Settings]):
    """The class with the largest output."""

    name = "argmax"
    off: ClassVar[Mapping[str, Any] | None] = {}

    @classmethod
    def holds(cls, settings: Any, beside: Beside) -> list[Term] | None:
        return []
