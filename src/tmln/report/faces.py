"""One row a method, for the first view: the one that was chosen of its configurations, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tmln.results.rows import Row
from tmln.results.selection import select_configurations


@dataclass(frozen=True)
class Face:
    """``words`` say how the row was chosen; nothing where it had no other beside it."""

    row: Row
    words: str
    fair: bool


def faces_of(rows: Sequence[Row]) -> dict[str, Face]:
    """By method, of the rows of one table, most accurate first; a method without an accuracy has its first row."""
    kin: dict[str, list[Row]] = {}
    for row in rows:
        kin.setdefault(row.contender, []).append(row)
    found = {name: Face(mine[0], f"highest ACC of {len(mine)}" * (len(mine) > 1), True) for name, mine in kin.items()}
    chosen = {
        choice.row.contender: Face(choice.row, choice.words, choice.fair) for choice in select_configurations(rows)
    }
    return {**found, **chosen}
