"""What is exported: a network from stored inputs, such as uint8 pixels, to ``predict``'s scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import tmln
from tmln.data.images import PAD_VALUE
from tmln.learner.class_edits import combine_scores, is_closed
from tmln.learner.forward import mask_logits
from tmln.learner.history import KNOWN_SHARE
from tmln.learner.task_data import to_float
from tmln.methods import get_reference_weight
from tmln.models.picture_model import PictureInput
from tmln.streams.augment import Normalise

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

CLOSED = -1e4  # the score of classes that do not compete
PREPARE = """\
import numpy as np
from PIL import Image, ImageOps

def fit(width, height):
    {fit}

def prepare(path):
    picture = Image.open(path)
    picture.draft(None, fit(*picture.size)[0])  # large JPEG files are decoded at 1/2, 1/4 or 1/8 of their size
    picture = ImageOps.exif_transpose(picture).convert("{mode}")
    size, box, place = fit(*picture.size)
    square = Image.new("{mode}", ({side}, {side}), {gray})
    if picture.size != ({side}, {side}):
        picture = picture.resize(size, Image.Resampling.BILINEAR, box)
    square.paste(picture, place)
    return np.asarray(square).reshape(1, {side}, {side}, {channels})
"""
FITS = {
    "pad": """longer = max(width, height)
    size = tuple(max(1, (2 * {side} * n + longer) // (2 * longer)) for n in (width, height))
    return size, (0, 0, width, height), tuple(({side} - n) // 2 for n in size)""",
    "stretch": "return ({side}, {side}), (0, 0, width, height), (0, 0)",
    "crop": """shorter = min(width, height)
    left, top = (width - shorter) * 0.5, (height - shorter) * 0.5
    return ({side}, {side}), (left, top, left + shorter, top + shorter), (0, 0)""",
}


class InputsToScores(nn.Module):
    """A network that prepares stored inputs as ``predict`` does, and returns its scores.

    Pictures are uint8 [N, H, W, C], as decoders give them.
    """

    def __init__(
        self,
        model: nn.Module,
        prepare: Callable[[Tensor], Tensor],
        pictures: bool,
        open_classes: Sequence[int] | None,
        names: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.names = tuple(names)
        self.model, self.prepare, self.pictures, self.open_classes = model, prepare, pictures, open_classes
        self.precision = get_reference_weight(model).dtype

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.prepare(inputs.permute(0, 3, 1, 2) if self.pictures else inputs)
        scores = combine_scores(self.model(x.to(self.precision) if x.is_floating_point() else x), self.names)
        return scores if self.open_classes is None else mask_logits(scores, self.open_classes).clamp_min(CLOSED)


def takes_pictures(learner: Learner) -> bool:
    """Return whether inputs are stored as bytes of one or three channels."""
    stored = learner.seen.transforms or {"shape": (), "dtype": None}
    return stored["dtype"] == "uint8" and len(stored["shape"]) == 3 and stored["shape"][0] in (1, 3)


def describe_export(learner: Learner) -> dict[str, Any]:
    """Return all that a program needs in order to use an export: inputs, classes, outputs.

    It is the content of ``labels.json``, and of the header of every other file.
    """
    count = max((len(learner.names), *(label + 1 for label in learner.classes)), default=0)
    stored = learner.seen.transforms
    found: dict[str, Any] = {
        "tmln": tmln.__version__,
        "classes": [None if is_closed(learner.names, index) else learner.name_of(index) for index in range(count)],
        "output": "scores [N, classes]; their softmax is the probability of each class",
        "input": None if stored is None else {"dtype": stored["dtype"], "shape": ["N", *stored["shape"]]},
        "normalisation": describe_normalisation(learner),
        "unknown": describe_unknown(learner),
    }
    if stored is not None and takes_pictures(learner):
        channels, height, width = stored["shape"]
        mode, fit = "L" if channels == 1 else "RGB", stored.get("fit", "crop")
        found["input"] = {
            "dtype": "uint8",
            "shape": ["N", height, width, channels],
            "layout": "NHWC",
            "channels": "gray" if channels == 1 else "RGB",
        }
        found["pictures"] = {
            "orientation": "as EXIF says",
            "mode": mode,
            "size": [height, width],
            "fit": fit,
            "resampling": "bilinear, antialiased (Pillow)",
            "python": make_preparation(mode, height, fit) if height == width and fit in FITS else None,
        }
    return found


def describe_unknown(learner: Learner) -> dict[str, Any] | None:
    """Return the rule by which ``predict`` says "unknown"; None where nothing was held out."""
    if not learner.seen.record.has_held_out or len(learner.classes) < 2:
        return None
    return {
        "rule": "unknown where the largest score minus the mean score of the classes `over` is below the threshold",
        "threshold": learner.unknown_threshold(),
        "over": list(learner.classes),
        "kept": KNOWN_SHARE,
        "held_out_samples": sum(len(held.y) for held in learner.seen.record.held if held is not None),
    }


def make_preparation(mode: str, side: int, fit: str) -> str:
    """Return Python code that defines ``prepare(path)``: a picture file to an input."""
    channels = 1 if mode == "L" else 3
    rest = {"side": side, "mode": mode, "channels": channels, "gray": PAD_VALUE if channels == 1 else (PAD_VALUE,) * 3}
    return PREPARE.format(fit=FITS[fit].format(**rest), **rest)


def describe_normalisation(learner: Learner) -> dict[str, Any] | None:
    """Return what .onnx and .pt2 do with inputs: (x / 255 - mean) / std, then a size.

    With an own ``prepare``, the numbers are not known. The same is to be done by whoever uses the
    weights alone.
    """
    known = learner.prepare
    normalise = known if isinstance(known, Normalise) else Normalise() if known is to_float else None
    if normalise is None:
        return {"by": "the learner's own prepare function, in .onnx and .pt2"}
    mean, std = normalise.mean, normalise.std
    network = next((module for module in learner.model.modules() if isinstance(module, PictureInput)), None)
    found: dict[str, Any] = {"by": ".onnx and .pt2 themselves; with .safetensors it is yours to do"}
    stored = learner.seen.transforms
    if stored is not None and stored["dtype"] == "uint8":
        found["scale"] = "1/255"
    if network is not None:  # its normalisation follows
        found["by"] = "the network itself"
        inner = [(float(m), float(s)) for m, s in zip(network.mean, network.std, strict=True)]
        outer = list(zip(mean, std, strict=True)) * (len(inner) if len(mean) == 1 else 1)
        pairs = [(m + s * a, s * b) for (m, s), (a, b) in zip(outer, inner, strict=True)]
        mean, std = tuple(round(m, 6) for m, _ in pairs), tuple(round(s, 6) for _, s in pairs)
        found["network_size"] = [network.size, network.size]
    return {**found, "mean": list(mean), "std": list(std)}


def make_stored_example(learner: Learner, count: int = 2) -> Tensor:
    """Return artificial inputs as stored; pictures are [N, H, W, C]."""
    transforms = learner.seen.transforms
    if transforms is None:
        raise RuntimeError("nothing was learned yet, so that it is not known what inputs look like")
    dtype, shape = getattr(torch, transforms["dtype"]), (count, *transforms["shape"])
    ramp = torch.arange(torch.Size(shape).numel()) * 37 % 256
    found = (ramp if dtype == torch.uint8 else ramp / 128 - 1).to(dtype).reshape(shape)
    return found.permute(0, 2, 3, 1).contiguous() if takes_pictures(learner) else found
