"""The families of parts, a line for each question that a method answers: its name, its table, its default.

Needs no torch. The names are known at once; a family's table is imported when it is looked at.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tmln.methods import Family

# name -> where its table is, and what a recipe takes that names none. In the order in which parts are made, begun,
# ended and saved: Algorithm 1's; but weights end first.
TABLES = {
    "replay": ("tmln.methods.replay", "REPLAYS", "none"),
    "penalty": ("tmln.methods.penalties", "PENALTIES", "none"),
    "step": ("tmln.methods.steps", "STEPS", "sgd"),
    "weights": ("tmln.methods.weights", "WEIGHTS", "last"),
    "answer": ("tmln.methods.answers", "ANSWERS", "argmax"),
}

INNER = "inner"  # the setting of a part that wraps another of its family; the other's settings are ``inner.NAME``


class Families(Mapping[str, "Family[Any]"]):
    """``{"replay": REPLAYS, "penalty": PENALTIES, "step": STEPS, ...}``."""

    def __getitem__(self, name: str) -> Family[Any]:
        module, attribute, _ = TABLES[name]
        found: Family[Any] = getattr(importlib.import_module(module), attribute)
        return found

    def default(self, name: str) -> str:
        """The part that a recipe takes which names none of this family."""
        return TABLES[name][2]

    def __contains__(self, name: object) -> bool:
        return name in TABLES

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)


FAMILIES = Families()
