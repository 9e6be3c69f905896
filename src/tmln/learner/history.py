"""What a learner remembers about its data: tasks, held-out samples, and retention."""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tmln.data.image_files import pick_evenly
from tmln.learner.evaluation import compute_evidence, find_features, measure_evidence
from tmln.methods.answers.closed_form import ClosedFormAnswer
from tmln.streams.samples import Samples

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

KNOWN_SHARE = 0.95  # of the held-out samples, which --unknown keeps
MOST_HELD = 2000  # held-out samples in all, of which each task has an equal part

WEAK = 0.6  # accuracy on held-out samples below which a class was learned badly

Interval = tuple[float, float]
Accuracies = list[dict[int, tuple[int, float]]]  # of each task, by class: held-out samples, and the share that is right


class Forgot(RuntimeError):
    """More was forgotten than allowed; the learner is as before.

    ``retention`` is the table, ``refused`` the state and the record that
    :meth:`tmln.Learner.accept` takes.
    """

    def __init__(self, message: str, retention: Retention, record: TaskRecord) -> None:
        super().__init__(message)
        self.retention, self.record = retention, record
        self.refused: tuple[dict[str, Any], TaskRecord] | None = None


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
    """Samples as stored that were not trained on, and their labels.

    ``features``: what a frozen model makes of them, so that they pass through it once.
    """

    x: Tensor
    y: Tensor
    features: Tensor | None = None

    def to_dict(self) -> dict[str, Tensor]:
        """Return plain values, as a state file holds them."""
        features = {} if self.features is None else {"features": self.features}
        return {"x": self.x, "y": self.y, **features}

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
    intervals: Mapping[str, Interval] = field(default_factory=dict)  # of each earlier task's loss, at 95%
    unmeasured: tuple[str, ...] = ()  # classes of the last task of which no sample is held out, where others are

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

    def forgotten(self, most: float) -> list[str]:
        """Return the earlier tasks that lost more than ``most``, as held-out samples can tell.

        The lower end of the interval is beyond it; without an interval, the loss itself.
        """
        found = []
        for name, (before, after) in self.tasks().items():
            if before is not None and self.intervals.get(name, (before - after, 0.0))[0] > most + 1e-9:
                found.append(name)
        return found

    def undecided(self, most: float) -> list[str]:
        """Return the earlier tasks that lost more than ``most``, but too few samples tell."""
        clear = self.forgotten(most)
        lost = {name: before - after for name, (before, after) in self.tasks().items() if before is not None}
        return [name for name, loss in lost.items() if loss > most + 1e-9 and name not in clear]

    def advice(self) -> list[str]:
        """Return what to do about classes that were learned badly and tasks that were forgotten."""
        lines = []
        weak = [row for row in self.rows if row.before is None and row.after < WEAK]
        if weak:
            some = ", ".join(f"{row.label} ({row.after:.0%})" for row in weak[:5]) + ", ..." * (len(weak) > 5)
            lines.append(
                f"learned badly: {some}. More images of these classes help most; a new state with --try compares "
                "methods on held-out images"
            )
        if self.unmeasured:
            some = ", ".join(self.unmeasured[:5]) + ", ..." * (len(self.unmeasured) > 5)
            lines.append(f"learned, but not measured: {some}. Too few images to hold one out; two are the fewest")
        if lost := self.forgotten(0.0):
            lines.append(
                f"forgotten in part: {', '.join(lost)}. tmln undo takes the task back; a task that also shows "
                "images of the earlier classes, or a new state with --try or a larger memory (--set "
                "replay.capacity=2000), forgets less"
            )
        return lines

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
                if after < before and name in self.intervals:
                    low, high = self.intervals[name]
                    parts[-1] += f" (95% interval of the loss: {100 * low:.0f} to {100 * high:.0f} points)"
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
    """All tasks so far, held-out samples of each (or None), their evidence, the retention table."""

    tasks: tuple[TaskNote, ...] = ()
    held: tuple[HeldOut | None, ...] = ()
    rows: tuple[RetentionRow, ...] = ()
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    evidence: Tensor | None = None  # of each held-out sample, task by task, at the end of the last task

    @property
    def has_held_out(self) -> bool:
        """Whether samples of any task were held out."""
        return any(held is not None for held in self.held)

    def add_task(self, note: TaskNote, held: Samples | None) -> TaskRecord:
        """Return the record with one more task; thin held-out samples to equal parts."""
        kept = [*self.held, None if held is None or not len(held) else HeldOut(*held.gather(torch.arange(len(held))))]
        part = MOST_HELD // max(1, sum(one is not None for one in kept))
        thinned = tuple(None if one is None else thin_samples(one, part) for one in kept)
        return replace(self, tasks=(*self.tasks, note), held=thinned, evidence=None)

    def make_unique(self, name: str) -> str:
        """Return the name, with a number behind it where a task has it already."""
        taken, tried = {note.name for note in self.tasks}, name
        number = 2
        while tried in taken:
            tried, number = f"{name} ({number})", number + 1
        return tried

    def find_unmeasured(self) -> tuple[int, ...]:
        """Return the last task's classes without a held-out sample; none where none has one."""
        if not self.held or self.held[-1] is None:
            return ()
        return tuple(sorted(set(self.tasks[-1].counts) - set(self.held[-1].y.tolist())))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as a state file holds them."""
        return {
            "lessons": [{**asdict(note), "counts": dict(note.counts), "new": list(note.new)} for note in self.tasks],
            "held": [None if held is None else held.to_dict() for held in self.held],
            "rows": [[row.task, row.label, row.count, row.before, row.after] for row in self.rows],
            "intervals": {name: list(interval) for name, interval in self.intervals.items()},
            **({} if self.evidence is None else {"evidence": self.evidence}),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any] | None) -> TaskRecord:
        """Read what :meth:`to_dict` gave; files of version 0.1 have nothing."""
        if plain is None:
            return cls()
        tasks = tuple(
            TaskNote(**{**note, "counts": dict(note["counts"]), "new": tuple(note["new"])}) for note in plain["lessons"]
        )
        held = tuple(None if one is None else HeldOut(one["x"], one["y"], one.get("features")) for one in plain["held"])
        intervals = {name: (low, high) for name, (low, high) in plain.get("intervals", {}).items()}
        return cls(tasks, held, tuple(RetentionRow(*row) for row in plain["rows"]), intervals, plain.get("evidence"))


@dataclass
class SeenData:
    """What a learner remembers about the data it has seen.

    ``transforms`` is what was done to stored samples, ``history`` the tasks' data where a recipe
    trains on all of them, ``previous`` the states that ``undo()`` goes back to, ``refused`` the one
    that ``accept()`` takes, ``earlier`` which held-out samples were right before the current task.
    """

    transforms: dict[str, Any] | None = None
    history: list[Samples] = field(default_factory=list)
    record: TaskRecord = field(default_factory=TaskRecord)
    previous: list[tuple[dict[str, Any], TaskRecord]] = field(default_factory=list)  # the newest last
    refused: tuple[dict[str, Any], TaskRecord] | None = None
    earlier: list[Tensor | None] | None = None


def start_record(record: TaskRecord, name: str, samples: Samples, held: Samples | None) -> TaskRecord:
    """Return the record with a new task; warn if it trains on held-out samples of another."""
    for task, count in count_overlap(samples, record).items():
        warnings.warn(
            f"{count} of the samples of {name!r} are those that {task!r} is judged by: now it is scored on "
            "what was learned; learn other samples",
            stacklevel=3,
        )
    if held is not None and len(held) and (count := count_equal(samples, held)):
        warnings.warn(
            f"{count} of the {len(samples):,} samples of {name!r} equal one that is held out to measure its accuracy, "
            "which is then too high: remove duplicates",
            stacklevel=3,
        )
    labels, counts = torch.unique(samples.y, return_counts=True)
    by_class = dict(zip(labels.tolist(), counts.tolist(), strict=True))
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return record.add_task(TaskNote(name, date, by_class), held)


def finish_record(
    learner: Learner, record: TaskRecord, classes: Sequence[int], known: Sequence[int], most: float | None
) -> TaskRecord:
    """Return the record with accuracies; raise :class:`Forgot` if a task lost more than ``most``.

    Only a loss that the held-out samples can tell counts (:meth:`Retention.forgotten`).
    """
    record = replace(record, held=tuple(held and keep_features(learner, held) for held in record.held))
    (right, evidence), before = measure_held_out(learner, record), learner.seen.earlier or []
    after = count_accuracies(record, right)
    new = tuple(sorted(set(classes) - set(known)))
    intervals = {
        note.name: bound_loss(then, now)
        for note, then, now in zip(record.tasks, before, right, strict=False)
        if then is not None and now is not None
    }
    rows = make_rows(record, learner.names, count_accuracies(record, before), after)
    table = Retention(rows, len(new), intervals)
    mine = after[-1].values()
    total = sum(count for count, _ in mine)
    accuracy = sum(count * right for count, right in mine) / total if total else None
    note = replace(record.tasks[-1], new=new, accuracy=accuracy)
    finished = replace(
        record, tasks=(*record.tasks[:-1], note), rows=table.rows, intervals=intervals, evidence=evidence
    )
    if most is not None and table.forgotten(most):
        raise Forgot(f"{table.summary()}: more than the {100 * most:g} points that may be lost", table, finished)
    return finished


def keep_features(learner: Learner, held: HeldOut) -> HeldOut:
    """Return held-out samples with their features, where a frozen model has some."""
    return held if held.features is not None else replace(held, features=find_features(learner, held.as_samples()))


def find_right(learner: Learner, record: TaskRecord) -> list[Tensor | None]:
    """Return for each task which held-out samples are predicted rightly; None without any."""
    return measure_held_out(learner, record)[0]


def measure_held_out(learner: Learner, record: TaskRecord) -> tuple[list[Tensor | None], Tensor | None]:
    """Return which held-out samples of each task are right, and the evidence of all, if any."""
    right: list[Tensor | None] = []
    evidence: list[Tensor] = []
    for held in record.held:
        if held is None:
            right.append(None)
            continue
        predicted, fits = predict_held(learner, held)
        right.append(predicted == held.y.cpu())
        evidence.append(fits)
    return right, torch.cat(evidence) if evidence else None


def predict_held(learner: Learner, held: HeldOut) -> tuple[Tensor, Tensor]:
    """Return the label that is predicted for each held-out sample, and the evidence for it."""
    if held.features is None or not isinstance(learner.answer, ClosedFormAnswer):
        return measure_evidence(learner, held.as_samples())
    scores = learner.answer.score_features(held.features)
    return learner.answer.label_features(held.features), compute_evidence(scores, learner.classes).float()


def count_accuracies(record: TaskRecord, right: Sequence[Tensor | None]) -> Accuracies:
    """Return for each task and class the number of held-out samples, and the accuracy."""
    found: Accuracies = []
    for held, mine in zip(record.held, right, strict=False):
        labels = [] if held is None else torch.unique(held.y).tolist()
        found.append({})
        for label in labels:
            assert held is not None
            assert mine is not None
            of_class = held.y == label
            found[-1][label] = int(of_class.sum()), float(mine[of_class].float().mean())
    return found


def measure_accuracies(learner: Learner, record: TaskRecord) -> Accuracies:
    """Return for each task and class the number of held-out samples, and the accuracy now."""
    return count_accuracies(record, find_right(learner, record))


def measure_record(learner: Learner) -> Tensor:
    """Return the evidence of each held-out sample, measured now where that was not done yet.

    Raises:
        ValueError: nothing was held out, or there is one class alone.
    """
    record = learner.seen.record
    if len(learner.classes) < 2:
        raise ValueError("with fewer than two classes nothing can be called unknown: learn another class")
    evidence = record.evidence
    if evidence is None:
        _, evidence = measure_held_out(learner, record)
    if evidence is None:
        raise ValueError(
            "no sample was held out, by which to choose what is unknown: learn with hold_out=0.1 (tmln learn "
            "--hold-out 0.1)"
        )
    return evidence


def choose_threshold(evidence: Tensor, keep: float = KNOWN_SHARE) -> float:
    """Return the largest value that a share ``keep`` of the evidence reaches.

    >>> choose_threshold(torch.arange(1.0, 101.0), 0.95)
    6.0
    """
    if not 0 < keep <= 1:
        raise ValueError(f"a share above 0 and up to 1 of the known is to be kept, got {keep}")
    dropped = math.floor((1 - keep) * len(evidence) + 1e-9)
    return float(evidence.sort().values[dropped])


def bound_loss(before: Tensor, after: Tensor) -> Interval:
    """Return the 95% interval of the accuracy that was lost, of the same samples before and after.

    Agresti and Min 2005: half a sample is added to each of the four cells of right and wrong before
    and after; then (lost - won) / n is bounded by the normal distribution.

    >>> low, high = bound_loss(torch.tensor([True] * 20), torch.tensor([True] * 16 + [False] * 4))
    >>> round(low, 3), round(high, 3)
    (-0.002, 0.366)
    """
    count = len(before) + 2
    lost = (int((before & ~after).sum()) + 0.5) / count
    won = (int((~before & after).sum()) + 0.5) / count
    margin = 1.96 * math.sqrt((lost + won - (lost - won) ** 2) / count)
    return max(-1.0, lost - won - margin), min(1.0, lost - won + margin)


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
    return HeldOut(held.x[at], held.y[at], None if held.features is None else held.features[at])


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


def count_equal(samples: Samples, held: Samples) -> int:
    """Return how many of the samples are, to the byte, among the held-out ones."""
    known = {checksum for x, _ in held.batches(512) for checksum in _checksums(x)}
    return sum(checksum in known for x, _ in samples.batches(512) for checksum in _checksums(x))


def _checksums(x: Tensor) -> list[int]:
    """Return a number for each sample, which equal samples have in common."""
    plain = x.detach().cpu().contiguous().numpy()
    return [zlib.crc32(one.tobytes()) for one in plain]
