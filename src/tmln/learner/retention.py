"""What a lesson gave and what it cost: of every earlier lesson and class, the accuracy before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tmln.learner.task_history import Record

if TYPE_CHECKING:
    from tmln.learner.learner import Learner


class Forgot(RuntimeError):
    """More was forgotten than is allowed; the learner is as before the lesson. ``retention`` says what."""

    def __init__(self, message: str, retention: Retention) -> None:
        super().__init__(message)
        self.retention = retention


@dataclass(frozen=True)
class Kept:
    """A class of a lesson: how many held-out samples it is judged by, and the shares that were right."""

    lesson: str
    label: str
    count: int
    before: float | None  # None of the lesson itself
    after: float


@dataclass(frozen=True)
class Retention:
    """The table of a lesson, as rows, as accuracies of whole lessons, and in words.

    >>> table = Retention((Kept("week 1", "ant", 50, 0.96, 0.9), Kept("week 2", "owl", 50, None, 0.98)), 1)
    >>> table.lessons()
    {'week 1': (0.96, 0.9), 'week 2': (None, 0.98)}
    >>> round(table.lost, 3)
    0.06
    >>> print(table.words())
    learned 1 new class, 98%; week 1 fell from 96% to 90%
    """

    rows: tuple[Kept, ...] = ()
    new: int = 0  # classes that came with the lesson

    def lessons(self) -> dict[str, tuple[float | None, float]]:
        """Accuracy before and after of every lesson, over its held-out samples."""
        found: dict[str, tuple[float | None, float]] = {}
        for name in dict.fromkeys(row.lesson for row in self.rows):
            mine = [row for row in self.rows if row.lesson == name]
            total = sum(row.count for row in mine)
            after = sum(row.count * row.after for row in mine) / total
            known = [row.before for row in mine if row.before is not None]
            before = sum(row.count * (row.before or 0.0) for row in mine) / total if len(known) == len(mine) else None
            found[name] = (before, after)
        return found

    @property
    def lost(self) -> float:
        """How far the lesson fell that fell furthest; 0 where none did."""
        return max((before - after for before, after in self.lessons().values() if before is not None), default=0.0)

    def words(self) -> str:
        """The sentence above the table."""
        said: list[str] = []
        for name, (before, after) in self.lessons().items():
            if before is None:
                classes = f"{self.new} new class{'es' if self.new != 1 else ''}" if self.new else name
                said.insert(0, f"learned {classes}, {after:.0%}")
            elif round(100 * before) == round(100 * after):
                said.append(f"{name} stays at {after:.0%}")
            else:
                said.append(f"{name} {'fell' if after < before else 'rose'} from {before:.0%} to {after:.0%}")
        return "; ".join(said) or "nothing was held out, so nothing is known of what was kept"

    def __str__(self) -> str:
        if not self.rows:
            return self.words()
        wide = [max(len(text) for text in column) for column in zip(*self._cells(), strict=True)]
        lines = [
            "  ".join(
                text.ljust(w) if k < 2 else text.rjust(w) for k, (text, w) in enumerate(zip(cells, wide, strict=True))
            )
            for cells in self._cells()
        ]
        return "\n".join([self.words(), "", *(line.rstrip() for line in lines)])

    def _cells(self) -> list[tuple[str, ...]]:
        cells: list[tuple[str, ...]] = [("lesson", "class", "samples", "before", "after")]
        for row in self.rows:
            before = "-" if row.before is None else f"{row.before:.0%}"
            cells.append((row.lesson, row.label, str(row.count), before, f"{row.after:.0%}"))
        return cells


def judge(learner: Learner, record: Record) -> list[dict[int, tuple[int, float]]]:
    """Of each lesson and class of a record, how many held-out samples there are and which share is right."""
    found: list[dict[int, tuple[int, float]]] = []
    for held in record.held:
        if held is None:
            found.append({})
            continue
        right = learner.answers(held.samples()) == held.y
        labels = torch.unique(held.y).tolist()
        found.append({c: (int((held.y == c).sum()), float(right[held.y == c].float().mean())) for c in labels})
    return found


def retention_of(
    record: Record,
    names: Sequence[str],
    before: Sequence[dict[int, tuple[int, float]]],
    after: Sequence[dict[int, tuple[int, float]]],
) -> Retention:
    """The table of the record's last lesson."""
    rows = []
    for index, (note, accuracies) in enumerate(zip(record.lessons, after, strict=True)):
        for label, (count, now) in accuracies.items():
            old = before[index].get(label) if index < len(before) else None
            name = names[label] if label < len(names) else str(label)
            rows.append(Kept(note.name, name, count, None if old is None else old[1], now))
    return Retention(tuple(rows), len(record.lessons[-1].new) if record.lessons else 0)


def plain_rows(retention: Retention) -> tuple[tuple[Any, ...], ...]:
    """As a record keeps them."""
    return tuple((row.lesson, row.label, row.count, row.before, row.after) for row in retention.rows)
