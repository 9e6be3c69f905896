"""What a learner remembers of its lessons: when, which classes, how many, how well; and samples to judge by."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import torch
from torch import Tensor

from tmln.data.image_files import pick_evenly
from tmln.streams.samples import Samples

MOST_HELD = 2000  # samples in all, of which each lesson has an equal part
FRACTION = 0.1  # of each class that is held out of a folder, unless said otherwise


@dataclass(frozen=True)
class LessonNote:
    """One lesson: its name, when it was learned, how many samples of which class, and the accuracy at its end."""

    name: str
    date: str
    counts: Mapping[int, int]
    new: tuple[int, ...] = ()
    accuracy: float | None = None


@dataclass(frozen=True, eq=False)
class Held:
    """Samples as stored that were not trained on, and their labels."""

    x: Tensor
    y: Tensor

    def samples(self) -> Samples:
        """As they are tested."""
        return Samples.of(self.x, self.y)


@dataclass(frozen=True, eq=False)
class Record:
    """All lessons so far, and for each what was held out of it (None where nothing was)."""

    lessons: tuple[LessonNote, ...] = ()
    held: tuple[Held | None, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = field(default=())  # of the last lesson's table of retention

    def with_lesson(self, note: LessonNote, held: Samples | None) -> Record:
        """One more; every lesson's held-out samples are thinned to its part of the bound."""
        kept = [*self.held, None if held is None or not len(held) else Held(*held.gather(torch.arange(len(held))))]
        part = MOST_HELD // max(1, sum(one is not None for one in kept))
        return replace(
            self, lessons=(*self.lessons, note), held=tuple(None if h is None else thinned(h, part) for h in kept)
        )

    def unique(self, name: str) -> str:
        """The name, with a number behind it where a lesson has it already."""
        taken, tried = {note.name for note in self.lessons}, name
        number = 2
        while tried in taken:
            tried, number = f"{name} ({number})", number + 1
        return tried

    def plain(self) -> dict[str, Any]:
        """As a state file holds it."""
        return {
            "lessons": [{**asdict(note), "counts": dict(note.counts), "new": list(note.new)} for note in self.lessons],
            "held": [None if held is None else {"x": held.x, "y": held.y} for held in self.held],
            "rows": [list(row) for row in self.rows],
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any] | None) -> Record:
        """What :meth:`plain` gave; nothing, of files from before there was this."""
        if plain is None:
            return cls()
        lessons = tuple(
            LessonNote(**{**note, "counts": dict(note["counts"]), "new": tuple(note["new"])})
            for note in plain["lessons"]
        )
        held = tuple(None if one is None else Held(one["x"], one["y"]) for one in plain["held"])
        return cls(lessons, held, tuple(tuple(row) for row in plain["rows"]))


def thinned(held: Held, most: int) -> Held:
    """At most so many, evenly of each class."""
    if len(held.y) <= most:
        return held
    labels = torch.unique(held.y).tolist()
    chosen: list[int] = []
    for label in labels:
        rows = (held.y == label).nonzero().squeeze(1)
        chosen += rows[pick_evenly(len(rows), max(1, most // len(labels)))].tolist()
    at = torch.tensor(sorted(chosen))
    return Held(held.x[at], held.y[at])


def now() -> str:
    """The date of a lesson, to the second, in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def counted(samples: Samples) -> dict[int, int]:
    """How many samples each class has."""
    labels, counts = torch.unique(samples.y, return_counts=True)
    return dict(zip(labels.tolist(), counts.tolist(), strict=True))


def overlap(samples: Samples, record: Record) -> dict[str, int]:
    """How many of these samples are, to the byte, among those that a lesson is judged by; none is left out."""
    marks = [None if held is None else set(_marks(held.x)) for held in record.held]
    if not any(marks):
        return {}
    found: dict[str, int] = {}
    for x, _ in samples.batches(512):
        for mark in _marks(x):
            for note, held in zip(record.lessons, marks, strict=True):
                if held and mark in held:
                    found[note.name] = found.get(note.name, 0) + 1
    return found


def _marks(x: Tensor) -> list[int]:
    """A number for each sample, which equal samples have in common."""
    plain = x.detach().cpu().contiguous().numpy()
    return [zlib.crc32(one.tobytes()) for one in plain]
