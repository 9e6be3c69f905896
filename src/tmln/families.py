"""The families of parts, one for each question that a method answers: a line for each. Needs no torch.

The names are known at once; a family's table is imported when it is looked at.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tmln.parts import Family

# name -> where its table is. In the order in which parts are made, begun, ended and saved: Algorithm 1's.
TABLES = {
    "replay": ("tmln.replay", "REPLAYS"),
    "penalty": ("tmln.penalties", "PENALTIES"),
    "step": ("tmln.steps", "STEPS"),
}


class Families(Mapping[str, "Family[Any]"]):
    """``{"replay": REPLAYS, "penalty": PENALTIES, "step": STEPS}``."""

    def __getitem__(self, name: str) -> Family[Any]:
        module, attribute = TABLES[name]
        found: Family[Any] = getattr(importlib.import_module(module), attribute)
        return found

    def __contains__(self, name: object) -> bool:
        return name in TABLES

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)


FAMILIES = Families()
