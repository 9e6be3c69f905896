"""What a learner remembers about its data: tasks, held-out samples, and retention."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tmln.data.image_files import pick_evenly
from tmln.streams.samples import Samples

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

MOST_HELD = 2000  # held-out samples in all, of which each task has an equal part

Accuracies = list[dict[int, tuple[int, float]]]  # of each task, by class: held-out samples, and the share that is right


class Forgot(RuntimeError):
    """More was forgotten than allowed; the learner is as before. ``retention`` is the table."""

    def __init__(self, message: str, retention: Retention) -> None:
        super().__init__(message)
        self.retention = retention


@dataclass(frozen=True)
class TaskNote:
    """One task: name, date, samples by class, new classes, and the accuracy at its end."""

    name: str
    date: str
    counts: Mapping[int, int]
    new: tuple[int, ...] = ()
    accuracy: float | None = None


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Samples as stored that were not trained on, and their labels."""

    x: Tensor
    y: Tensor

    def as_samples(self) -> Samples:
        """Return them as samples to test on."""
        return Samples.of(self.x, self.y)


@dataclass(frozen=True)
class RetentionRow:
    """A class of a task: held-out samples, and accuracies before and after the last task."""

    task: str
    label: str
    count: int
    before: float | None  # None of the last task itself
    after: float


@dataclass(frozen=True)
class Retention:
    """What the last task gave and cost, as rows, as accuracies of tasks, and as text.

    >>> ant = RetentionRow("week 1", "ant", 50, 0.96, 0.9)
    >>> table = Retention((ant, RetentionRow("week 2", "owl", 50, None, 0.98)), 1)
    >>> table.tasks()
    {'week 1': (0.96, 0.9), 'week 2': (None, 0.98)}
    >>> round(table.lost, 3)
    0.06
    >>> print(table.summary())
    learned 1 new class, 98%; week 1 fell from 96% to 90%
    """

    rows: tuple[RetentionRow, ...] = ()
    new: int = 0  # classes that came with the task

    def tasks(self) -> dict[str, tuple[float | None, float]]:
        """Return accuracy before and after of every task, over its held-out samples."""
        found: dict[str, tuple[float | None, float]] = {}
        for name in dict.fromkeys(row.task for row in self.rows):
            mine = [row for row in self.rows if row.task == name]
            total = sum(row.count for row in mine)
            after = sum(row.count * row.after for row in mine) / total
            known = [row.before for row in mine if row.before is not None]
            before = sum(row.count * (row.before or 0.0) for row in mine) / total if len(known) == len(mine) else None
            found[name] = (before, after)
        return found

    @property
    def lost(self) -> float:
        """The largest loss of accuracy of a task; 0 where none lost any."""
        return max((before - after for before, after in self.tasks().values() if before is not None), default=0.0)

    def summary(self) -> str:
        """Return the sentence above the table."""
        parts: list[str] = []
        for name, (before, after) in self.tasks().items():
            if before is None:
                classes = f"{self.new} new class{'es' if self.new != 1 else ''}" if self.new else name
                parts.insert(0, f"learned {classes}, {after:.0%}")
            elif round(100 * before) == round(100 * after):
                parts.append(f"{name} stays at {after:.0%}")
            else:
                parts.append(f"{name} {'fell' if after < before else 'rose'} from {before:.0%} to {after:.0%}")
        return "; ".join(parts) or "nothing was held out, so nothing is known of what was kept"

    def __str__(self) -> str:
        if not self.rows:
            return self.summary()
        table = [("task", "class", "samples", "before", "after")]
        for row in self.rows:
            before = "-" if row.before is None else f"{row.before:.0%}"
            table.append((row.task, row.label, str(row.count), before, f"{row.after:.0%}"))
        wide = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(
                text.ljust(w) if k < 2 else text.rjust(w) for k, (text, w) in enumerate(zip(cells, wide, strict=True))
            )
            for cells in table
        ]
        return "\n".join([self.summary(), "", *(line.rstrip() for line in lines)])


@dataclass(frozen=True, eq=False)
class TaskRecord:
    """All tasks so far, held-out samples of each (or None), and the last retention table."""

    tasks: tuple[TaskNote, ...] = ()
    held: tuple[HeldOut | None, ...] = ()
    rows: tuple[RetentionRow, ...] = ()

    @property
    def has_held_out(self) -> bool:
        """Whether samples of any task were held out."""
        return any(held is not None for held in self.held)

    def add_task(self, note: TaskNote, held: Samples | None) -> TaskRecord:
        """Return the record with one more task; thin held-out samples to equal parts."""
        kept = [*self.held, None if held is None or not len(held) else HeldOut(*held.gather(torch.arange(len(held))))]
        part = MOST_HELD // max(1, sum(one is not None for one in kept))
        thinned = tuple(None if one is None else thin_samples(one, part) for one in kept)
        return replace(self, tasks=(*self.tasks, note), held=thinned)

    def make_unique(self, name: str) -> str:
        """Return the name, with a number behind it where a task has it already."""
        taken, tried = {note.name for note in self.tasks}, name
        number = 2
        while tried in taken:
            tried, number = f"{name} ({number})", number + 1
        return tried

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as a state file holds them."""
        return {
            "lessons": [{**asdict(note), "counts": dict(note.counts), "new": list(note.new)} for note in self.tasks],
            "held": [None if held is None else {"x": held.x, "y": held.y} for held in self.held],
            "rows": [[row.task, row.label, row.count, row.before, row.after] for row in self.rows],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any] | None) -> TaskRecord:
        """Read what :meth:`to_dict` gave; files of version 0.1 have nothing."""
        if plain is None:
            return cls()
        tasks = tuple(
            TaskNote(**{**note, "counts": dict(note["counts"]), "new": tuple(note["new"])}) for note in plain["lessons"]
        )
        held = tuple(None if one is None else HeldOut(one["x"], one["y"]) for one in plain["held"])
        return cls(tasks, held, tuple(RetentionRow(*row) for row in plain["rows"]))


@dataclass
class SeenData:
    """What a learner remembers about the data it has seen.

    ``transforms`` is what was done to stored samples, ``history`` the tasks' data where a recipe
    trains on all of them, ``previous`` the states that ``undo()`` goes back to, ``earlier`` the
    accuracies from before the current task.
    """

    transforms: dict[str, Any] | None = None
    history: list[Samples] = field(default_factory=list)
    record: TaskRecord = field(default_factory=TaskRecord)
    previous: list[tuple[dict[str, Any], TaskRecord]] = field(default_factory=list)  # the newest last
    earlier: Accuracies | None = None


def start_record(record: TaskRecord, name: str, samples: Samples, held: Samples | None) -> TaskRecord:
    """Return the record with a new task; warn if it trains on held-out samples of another."""
    for task, count in count_overlap(samples, record).items():
        warnings.warn(
            f"{count} of the samples of {name!r} are those that {task!r} is judged by: now it is scored on "
            "what was learned; learn other samples",
            stacklevel=3,
        )
    labels, counts = torch.unique(samples.y, return_counts=True)
    by_class = dict(zip(labels.tolist(), counts.tolist(), strict=True))
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return record.add_task(TaskNote(name, date, by_class), held)


def finish_record(
    learner: Learner, record: TaskRecord, classes: Sequence[int], known: Sequence[int], most: float | None
) -> TaskRecord:
    """Return the record with accuracies; raise :class:`Forgot` if one lost more than ``most``."""
    after = measure_accuracies(learner, record) if record.has_held_out else [{} for _ in record.tasks]
    new = tuple(sorted(set(classes) - set(known)))
    table = Retention(make_rows(record, learner.names, learner.seen.earlier or [], after), len(new))
    if most is not None and table.lost > most + 1e-9:
        raise Forgot(f"{table.summary()}: more than the {100 * most:g} points that may be lost", table)
    mine = after[-1].values()
    total = sum(count for count, _ in mine)
    accuracy = sum(count * right for count, right in mine) / total if total else None
    note = replace(record.tasks[-1], new=new, accuracy=accuracy)
    return replace(record, tasks=(*record.tasks[:-1], note), rows=table.rows)


def measure_accuracies(learner: Learner, record: TaskRecord) -> Accuracies:
    """Return for each task and class the number of held-out samples, and the accuracy."""
    found: Accuracies = []
    for held in record.held:
        if held is None:
            found.append({})
            continue
        right = learner.predict_labels(held.as_samples()) == held.y
        labels = torch.unique(held.y).tolist()
        found.append({c: (int((held.y == c).sum()), float(right[held.y == c].float().mean())) for c in labels})
    return found


def make_rows(
    record: TaskRecord, names: Sequence[str], before: Accuracies, after: Accuracies
) -> tuple[RetentionRow, ...]:
    """Return the rows of the retention table of the record's last task."""
    rows = []
    for index, (note, accuracies) in enumerate(zip(record.tasks, after, strict=True)):
        for label, (count, now) in accuracies.items():
            old = before[index].get(label) if index < len(before) else None
            name = names[label] if label < len(names) else str(label)
            rows.append(RetentionRow(note.name, name, count, None if old is None else old[1], now))
    return tuple(rows)


def thin_samples(held: HeldOut, most: int) -> HeldOut:
    """Return at most so many samples, evenly of each class."""
    if len(held.y) <= most:
        return held
    labels = torch.unique(held.y).tolist()
    chosen: list[int] = []
    for label in labels:
        rows = (held.y == label).nonzero().squeeze(1)
        chosen += rows[pick_evenly(len(rows), max(1, most // len(labels)))].tolist()
    at = torch.tensor(sorted(chosen))
    return HeldOut(held.x[at], held.y[at])


def count_overlap(samples: Samples, record: TaskRecord) -> dict[str, int]:
    """Return by task how many of these samples are, to the byte, among its held-out ones."""
    checksums = [None if held is None else set(_checksums(held.x)) for held in record.held]
    if not any(checksums):
        return {}
    found: dict[str, int] = {}
    for x, _ in samples.batches(512):
        for checksum in _checksums(x):
            for note, held in zip(record.tasks, checksums, strict=True):
                if held and checksum in held:
                    found[note.name] = found.get(note.name, 0) + 1
    return found


def _checksums(x: Tensor) -> list[int]:
    """Return a number for each sample, which equal samples have in common."""
    plain = x.detach().cpu().contiguous().numpy()
    return [zlib.crc32(one.tobytes()) for one in plain]
