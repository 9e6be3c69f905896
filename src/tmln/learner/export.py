"""Export the model for programs without tmln: weights, an exported program, ONNX, or the labels."""

from __future__ import annotations

import importlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from torch import Tensor, nn

import tmln
from tmln.curvature.preserve_state import preserve_model
from tmln.data.images import PAD_VALUE
from tmln.distributed.sharding import gather_parameters
from tmln.learner.class_edits import combine_scores, is_closed
from tmln.learner.evaluation import find_nonfinite
from tmln.learner.forward import mask_logits
from tmln.learner.history import KNOWN_SHARE
from tmln.learner.task_data import to_float
from tmln.methods import get_reference_weight, prepare_inputs
from tmln.models.picture_model import PictureInput
from tmln.models.text_model import PADDING, find_tokenizer
from tmln.models.tuning_options import merge_adapters
from tmln.streams.augment import Normalise
from tmln.suggest import did_you_mean
from tmln.writing import replacing, write_all

if TYPE_CHECKING:
    from tmln.learner.learner import Learner


CLOSE = 1e-3  # by which the outputs of another runtime may differ, of the largest output
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
TOKENS = """\
import numpy as np
from tokenizers import Tokenizer

def prepare(texts, tokenizer):
    made = Tokenizer.from_str(tokenizer)
    made.no_padding()
    made.enable_truncation(%d)
    found = [one.ids for one in made.encode_batch(texts)]
    return np.array([ids + [-1] * (made.truncation["max_length"] - len(ids)) for ids in found], np.int32)
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
    tokenizer = find_tokenizer(learner.model)
    if stored is not None and tokenizer is not None:
        length = stored["shape"][0]
        found["texts"] = {"length": length, "padding": PADDING, "tokenizer": tokenizer, "python": TOKENS % length}
        found["normalisation"] = None
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

    With an own ``prepare``, the numbers are not known. Programs that use the weights alone must do
    the same.
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
    if dtype == torch.int32:  # tokens, which every vocabulary has
        return (ramp % 8).to(dtype).reshape(shape)
    found = (ramp if dtype == torch.uint8 else ramp / 128 - 1).to(dtype).reshape(shape)
    return found.permute(0, 2, 3, 1).contiguous() if takes_pictures(learner) else found


def export(learner: Learner, path: str | os.PathLike[str]) -> Path:
    """Write what the suffix of ``path`` says; replace an older file as a whole.

    - ``.safetensors``: the weights by name: ``model.load_state_dict(load_file(path))``.
    - ``.pt2``: from inputs to scores as a program, which ``torch.export.load(path).module()`` runs
      without the model's code.
    - ``.onnx``: the same for ONNX, checked against ``predict``.
    - ``.json``: what the inputs are, how they are prepared, and the classes. The other files have
      it, too: in the header, as ``labels.json`` among the extra files, in the metadata.

    Inputs of .pt2 and .onnx are as stored, uint8 [N, H, W, C] for pictures; normalisation is in
    the program (:func:`tmln.learner.export.describe_export`). Adapters are merged into the
    weights beside them.
    """
    path = Path(path).expanduser()
    if path.suffix not in WRITERS:
        known = ", ".join(WRITERS)
        raise ValueError(f"cannot export to {path.name!r}{did_you_mean(path.suffix, WRITERS)} (suffixes: {known})")
    if learner.heads and path.suffix != ".json":
        raise ValueError(
            f"{path.name}: every task has its own head, and an exported model would not know which one to use: save "
            "the learner, or store learner.model.state_dict()"
        )
    model = learner.model
    with ExitStack() as stack:
        stack.enter_context(learner.weights.prediction_weights())
        stack.enter_context(gather_parameters(model))
        stack.enter_context(preserve_model(model, training=False))
        stack.enter_context(merge_adapters(model))
        if name := find_nonfinite(model):
            raise ValueError(
                f"{path.name}: {name} of the model holds values that are not finite; undo(), or train it again"
            )
        content = WRITERS[path.suffix](learner)  # in memory: a full disk would end torch's own writer with an abort
    with replacing(path) as aside, aside.open("wb", buffering=0) as file:
        write_all(file, content)
    return path


@contextmanager
def _head_in_model(learner: Learner) -> Iterator[None]:
    """Put the answer's head into the model within the block."""
    if not learner.seen.transforms:
        yield
        return
    stored = make_stored_example(learner)
    stored = stored.permute(0, 3, 1, 2) if takes_pictures(learner) else stored
    with learner.answer.in_model(learner.model, prepare_inputs(learner.model, stored, learner.prepare)):
        yield


def check_scores(learner: Learner, run: Callable[[Tensor], Tensor], program: str, remedy: str) -> None:
    """Raise where ``run`` gives other scores than ``predict`` has, for one input or several."""
    for count in (1, 3):
        inputs = make_stored_example(learner, count)
        stored = inputs.permute(0, 3, 1, 2) if takes_pictures(learner) else inputs
        with torch.no_grad():
            found = run(inputs).cpu().double()
            expected = mask_logits(
                learner.score(learner.model, prepare_inputs(learner.model, stored, learner.prepare))[1],
                learner.open_classes,
            )
        expected = expected.cpu().double()
        off = float("inf")
        if found.shape == expected.shape:
            compete = expected.softmax(1) > 1e-9
            off = float((found - expected).where(compete, 0.0).abs().max())
        if not off <= CLOSE * max(1.0, float(expected[expected.isfinite()].abs().max())):
            raise RuntimeError(f"{program} answers otherwise than the model, by {off:g}; {remedy}")


def _make_network(learner: Learner) -> InputsToScores:
    return InputsToScores(
        learner.model, learner.prepare, takes_pictures(learner), learner.open_classes, learner.names
    ).eval()


def _as_json(learner: Learner) -> str:
    return json.dumps(describe_export(learner))


def _serialize_weights(learner: Learner) -> bytes:
    names = set(learner.model.state_dict())
    with _head_in_model(learner):
        if set(learner.model.state_dict()) != names:
            raise ValueError(
                f"the head of answer {learner.answer.name!r} is more than the weights of a layer; "
                "export to .pt2 or .onnx"
            )
        tensors = {
            name: value.detach().cpu().contiguous().clone() for name, value in learner.model.state_dict().items()
        }
    content: bytes = safetensors.torch.save(tensors, {"format": "pt", "labels": _as_json(learner)})
    return content


def _serialize_labels(learner: Learner) -> bytes:
    return (json.dumps(describe_export(learner), indent=2, ensure_ascii=False) + "\n").encode()


@contextmanager
def _without_norm_warning() -> Iterator[None]:
    """Hide what torch says of every batch norm."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No complete tensor found in the group")
        yield


def _trace(learner: Learner) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1)
    with _head_in_model(learner), _without_norm_warning():
        network = _make_network(learner)
        example = make_stored_example(learner).to(get_reference_weight(learner.model).device)
        program = torch.export.export(network, (example,), dynamic_shapes=({0: batch},), strict=False)
    check_scores(
        learner,
        lambda x: program.module()(x.to(example.device)),
        "the program",
        f"answer {learner.answer.name!r} has scores that no layer gives: choose another answer",
    )
    return program


def _serialize_program(learner: Learner) -> bytes:
    content = io.BytesIO()
    with _without_norm_warning():
        torch.export.save(_trace(learner), content, extra_files={"labels.json": _as_json(learner)})
    return content.getvalue()


def _serialize_onnx(learner: Learner) -> bytes:
    try:
        for name in ("onnx", "onnxruntime", "onnxscript"):  # torch's exporter is written with the last
            importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"ONNX needs the package {error.name}: pip install 'tmln[export]'") from error
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir")]
    levels = [log.level for log in logs]
    try:
        for log in logs:
            log.setLevel(logging.ERROR)  # of operators that no model here has, and of empty attributes
        with warnings.catch_warnings():  # of torch's own, about torch
            warnings.simplefilter("ignore")
            program = torch.onnx.export(_trace(learner), (), output_names=["scores"], verbose=False)
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)
    assert program is not None
    model = program.model_proto
    entry = model.metadata_props.add()
    entry.key, entry.value = "labels", _as_json(learner)
    content: bytes = model.SerializeToString()
    check_onnx(learner, content)
    return content


def check_onnx(learner: Learner, content: bytes) -> None:
    """Raise where onnxruntime gives other scores than ``predict``, for one input or several."""
    onnxruntime = importlib.import_module("onnxruntime")
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (name,) = (given.name for given in session.get_inputs())
    check_scores(
        learner,
        lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0]),
        "the ONNX file",
        "export to .pt2 instead",
    )


WRITERS: dict[str, Callable[[Learner], bytes]] = {
    ".safetensors": _serialize_weights,
    ".pt2": _serialize_program,
    ".onnx": _serialize_onnx,
    ".json": _serialize_labels,
}
