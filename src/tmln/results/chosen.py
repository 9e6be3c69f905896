"""One row a method: which of its configurations was chosen, from how many, and by what data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tmln.results.rows import Row, best_row


@dataclass(frozen=True)
class Choice:
    """``fair`` is a row that was chosen on validation data, or that had no other beside it."""

    row: Row
    among: int
    fair: bool

    @property
    def words(self) -> str:
        """How it was chosen; nothing where there was nothing to choose."""
        if self.among == 1:
            return ""
        return f"chosen on {'validation' if self.fair else 'the test'} data from {self.among}"

    @property
    def name(self) -> str:
        """``tmln (step.damping=0.2, chosen on validation data from 5)``."""
        if not self.row.settings or self.row.alone:
            return self.row.label
        said = [self.row.settings.replace(" ", ", "), *([self.words] if self.words else [])]
        return f"{self.row.method} ({', '.join(said)})"


def passed_over(rows: Sequence[Row]) -> list[Row]:
    """Rows of methods for which another configuration was chosen on validation data."""
    fair = {choice.row.contender: choice.row for choice in choices(rows) if choice.fair}
    return [row for row in rows if row.contender in fair and row is not fair[row.contender]]


def choices(rows: Sequence[Row]) -> list[Choice]:
    """Of each method that competes, the row with the best validation accuracy where every run has one.

    Where some run has none, the best on the test data stands in: it was chosen by the answer, and is not ``fair``.
    """
    methods: dict[str, list[Row]] = {}
    for row in rows:
        if row.competes:
            methods.setdefault(row.contender, []).append(row)
    found = []
    for kin in methods.values():
        counts = [(row.summary("val_acc").n, row.summary("acc").n) for row in kin]
        known = all(validated == tested for validated, tested in counts)
        best = best_row(kin, "val_acc" if known and len(kin) > 1 else "acc")
        if best is not None:
            found.append(Choice(best, len(kin), fair=known or len(kin) == 1))
    return found
