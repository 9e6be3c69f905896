"""Select one configuration of each method: by validation accuracy where there is one, else by test accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tmln.analysis.rows import Row, best_row


@dataclass(frozen=True)
class Selection:
    """The selected row of a method, among how many; ``fair`` unless it was selected on the test data."""

    row: Row
    among: int
    fair: bool

    @property
    def words(self) -> str:
        """Say how the row was selected; empty where the method has one configuration."""
        if self.among == 1:
            return ""
        return f"chosen on {'validation' if self.fair else 'the test'} data from {self.among}"

    @property
    def name(self) -> str:
        """Return the name with its settings: ``tmln (step.damping=0.2, chosen on validation data from 5)``."""
        if not self.row.settings or self.row.alone:
            return self.row.label
        said = [self.row.settings.replace(" ", ", "), *([self.words] if self.words else [])]
        return f"{self.row.method} ({', '.join(said)})"


def find_unselected(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of methods for which another configuration was selected on validation data."""
    fair = {choice.row.contender: choice.row for choice in select_configurations(rows) if choice.fair}
    return [row for row in rows if row.contender in fair and row is not fair[row.contender]]


def select_configurations(rows: Sequence[Row]) -> list[Selection]:
    """Return one row of each competing method: the best by validation accuracy, if every run has one.

    Otherwise it is the best on the test data, which is not ``fair``.
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
            found.append(Selection(best, len(kin), fair=known or len(kin) == 1))
    return found
