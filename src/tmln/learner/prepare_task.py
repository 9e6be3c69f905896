"""Data in any form as a lesson: samples with the learner's own labels, and those that are held out to judge by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tmln.learner.class_names import by_name, check_numbers, merged, names_in
from tmln.learner.task_history import FRACTION
from tmln.methods import get_reference_weight
from tmln.streams.arrays import as_samples
from tmln.streams.assemble import choose_validation
from tmln.streams.own_data import OwnSamples, read_own_samples
from tmln.streams.samples import Samples

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

Classes = Sequence[int] | Sequence[str] | None


@dataclass(frozen=True, eq=False)
class Taken:
    """What is learned, what is held out, all names there are then, the task's own classes, the lesson's name."""

    samples: Samples
    held: Samples | None
    names: tuple[str, ...]
    classes: tuple[int, ...]
    name: str


def take(
    learner: Learner, data: Any, classes: Classes, test: Any, hold_out: float | None, side: int | None, name: str | None
) -> Taken:
    """Data as a lesson of this learner, which stays as it is."""
    if hold_out is not None and not 0 <= hold_out < 1:
        raise ValueError(f"hold_out is a share from 0 up to 1, got {hold_out}")
    samples, given, found = _read(learner, data, side)
    words = [c for c in classes or () if isinstance(c, str)]
    numbers = [int(c) for c in classes or () if not isinstance(c, str)]
    if words and numbers:
        raise TypeError(f"classes are names or numbers, not both: {list(classes or ())}")
    found = tuple(words) or found
    if found is None:
        check_numbers(samples, learner.names)
        names, own = learner.names, numbers
    else:
        names = merged(learner.names, found, learner.classes)
        samples = by_name(samples, found, names)
        given = None if given is None else by_name(given, found, names)
        own = [names.index(word) for word in ([found[c] for c in numbers] or words)]
    if test is not None:
        given = asked(learner, test, names=names, side=side)
    share = hold_out if hold_out is not None else FRACTION if _is_place(data) and given is None else 0.0
    mine = tuple(own) or samples.classes
    if share and given is None:
        chosen = choose_validation(samples.y, share, learner.seed)
        samples, given = (samples.subset((chosen == role).nonzero().squeeze(1)) for role in (False, True))
    place = Path(data).expanduser().resolve().name if _is_place(data) else ""
    called = name or place or f"lesson {len(learner.record.lessons) + 1}"
    return Taken(samples, given, names, mine, learner.record.unique(called))


def asked(
    learner: Learner,
    data: Any,
    classes: Sequence[str] | None = None,
    names: Sequence[str] = (),
    side: int | None = None,
) -> Samples:
    """Data to be tested, with the learner's labels: a class that was never learned is an error."""
    samples, apart, found = _read(learner, data, side)
    samples, found, known = apart or samples, tuple(classes or ()) or found, names or learner.names
    if found is not None and known:
        return by_name(samples, found, known)
    check_numbers(samples, known)
    return samples


def _is_place(data: Any) -> bool:
    return isinstance(data, (str, PathLike))


def _read(learner: Learner, data: Any, side: int | None) -> tuple[Samples, Samples | None, tuple[str, ...] | None]:
    """Samples, those that only test, and names: of a place on disk, or of anything in memory."""
    if isinstance(data, OwnSamples):
        return data.train, data.test, data.names
    if not _is_place(data):
        return as_samples(data, get_reference_weight(learner.model).dtype), None, names_in(data)
    shape = None if learner.intake is None else learner.intake["shape"]
    own = read_own_samples(data, shape, side)
    return own.train, own.test, own.names
