"""Candidates for a new state, compared on held-out images: ``tmln learn --try``."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import environ

from tmln.learner import Learner
from tmln.methods.answers.feature_cache import FOLDER
from tmln.progress import track


@dataclass(frozen=True)
class CandidateMethod:
    """A method to try: its name, what it is, its settings, and its epochs unless chosen by data."""

    method: str
    about: str
    settings: Mapping[str, str] = field(default_factory=dict)
    epochs: int | None = None


@dataclass(frozen=True)
class Candidate:
    """What a candidate reached: accuracy on held-out images, how many there were, and seconds."""

    method: str
    about: str
    accuracy: float
    count: int
    seconds: float


WITH_BACKBONE = (
    CandidateMethod("slda", "frozen backbone, linear discriminant analysis"),
    CandidateMethod("ranpac", "frozen backbone, ridge regression on random features"),
    # a rate a tenth of the usual one: the weights are good already
    CandidateMethod("ranpac+", "backbone adapted to the first task, then ranpac", {"lr": "0.001"}, 3),
)
DEFAULT = "er+ (adamw)"  # what a state begins with from scratch unless a method is asked for
FROM_SCRATCH = (
    CandidateMethod(DEFAULT, "replay balanced, weights averaged, AdamW"),
    CandidateMethod("er+", "the same with SGD and momentum", {"lr": "0.03"}),
    CandidateMethod("tmln+", "the same with the TMLN step", {"lr": "0.03"}),
)

Learn = Callable[[str, str, Mapping[str, str], "int | None"], Learner]


def compare_candidates(methods: Sequence[CandidateMethod], learn: Learn) -> tuple[Learner, tuple[Candidate, ...]]:
    """Learn with each method; return the learner of the best, and what all reached.

    Of equal accuracies the first one's is kept: candidates are listed from simple to costly.

    Args:
        methods: what to try.
        learn: makes a learner by method, description, settings and epochs, and teaches it.
    """
    best: Learner | None = None
    found: list[Candidate] = []
    with _shared_features():
        for one in track(methods, "candidates"):
            begun = time.monotonic()
            learner = learn(one.method, one.about, one.settings, one.epochs)
            rows = learner.retention.rows
            count = sum(row.count for row in rows)
            if not count:
                raise ValueError("nothing is held out, by which candidates could be compared: --hold-out 0.1, say")
            accuracy = sum(row.count * row.after for row in rows) / count
            if best is None or accuracy > max(other.accuracy for other in found):
                best = learner
            found.append(Candidate(one.method, one.about, accuracy, count, time.monotonic() - begun))
    assert best is not None
    return best, tuple(found)


@contextmanager
def _shared_features() -> Iterator[None]:
    """Keep features in a database of this call, so that frozen candidates compute them once."""
    if FOLDER in environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tmln-features-") as place:
        environ[FOLDER] = place
        try:
            yield
        finally:
            del environ[FOLDER]
