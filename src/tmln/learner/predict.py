"""What the model says of samples: outputs in batches, the class of each, and predictions for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tmln.curvature.preserve_state import eval_mode
from tmln.learner.logit_mask import mask_logits
from tmln.methods import get_reference_weight, prepare_inputs
from tmln.streams.arrays import as_samples
from tmln.streams.own_data import read_own_inputs
from tmln.streams.samples import Samples

if TYPE_CHECKING:
    from tmln.learner.learner import Learner


@dataclass(frozen=True)
class Prediction:
    """The most probable class and its probability; ``top`` has the next ones, too, where they were asked for."""

    label: str
    probability: float
    index: int
    top: tuple[tuple[str, float], ...] = ()
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.label} ({self.probability:.0%})"


@torch.no_grad()
def outputs(learner: Learner, samples: Samples) -> Iterator[Tensor]:
    """What the answer part goes by, in batches, of the weights that answer, in eval mode: logits, where it is
    ``argmax``. Closed classes have -inf. Modes come back."""
    model, seen = learner.model, learner.classes or None if learner.logit_mask == "seen" else None
    with eval_mode(model), learner.weights.prediction_weights():
        for x, _ in samples.batches(2 * learner.at_a_time):
            _, scores = learner.answer.scores(model, prepare_inputs(model, x, learner.prepare))
            yield mask_logits(scores, seen)


def answers(learner: Learner, samples: Samples) -> Tensor:
    """The index of the class of each sample."""
    return torch.cat([output.argmax(1).cpu() for output in outputs(learner, samples)])


def predict(learner: Learner, data: Any, top: int = 1) -> list[Prediction]:
    """Of each sample the ``top`` most probable classes.

    ``data`` is a tensor or array of inputs as stored, one picture or a folder of pictures or several of them, or all
    that can be learned, whose labels are not looked at.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    samples, paths = _unlabelled(learner, data)
    found: list[Prediction] = []
    for output in outputs(learner, samples):
        shares = output.float().softmax(1)
        best, places = shares.topk(min(top, shares.shape[1]), dim=1)
        for probabilities, indices in zip(best.tolist(), places.tolist(), strict=True):
            named = tuple((learner.name_of(i), p) for i, p in zip(indices, probabilities, strict=True))
            path = paths[len(found)] if paths else None
            found.append(Prediction(*named[0], indices[0], named if top > 1 else (), path))
    return found


def _unlabelled(learner: Learner, data: Any) -> tuple[Samples, Sequence[Path]]:
    if isinstance(data, (str, PathLike)):
        data = [data]
    if isinstance(data, (list, tuple)) and data and all(isinstance(item, (str, PathLike)) for item in data):
        if learner.intake is None:
            raise RuntimeError("nothing was learned yet, so that it is not known what pictures are to be made of")
        return read_own_inputs([Path(item) for item in data], learner.intake["shape"])
    if isinstance(data, Tensor) or type(data).__module__ == "numpy":
        x = torch.as_tensor(data)
        data = (x, torch.zeros(len(x), dtype=torch.int64))
    return as_samples(data, get_reference_weight(learner.model).dtype), ()
