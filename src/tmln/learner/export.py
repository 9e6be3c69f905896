"""Export the model for programs without tmln: weights, an exported program, ONNX, or the labels."""

from __future__ import annotations

import importlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors.torch
import torch
from torch import Tensor

from tmln.curvature.preserve_state import preserve_model
from tmln.distributed.sharding import gather_parameters
from tmln.learner.exported_model import InputsToScores, describe_export, make_stored_example, takes_pictures
from tmln.learner.forward import mask_logits
from tmln.methods import get_reference_weight, prepare_inputs
from tmln.models.tuning_options import merge_adapters
from tmln.suggest import did_you_mean
from tmln.writing import write_all, writing

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

CLOSE = 1e-3  # by which the outputs of another runtime may differ, of the largest output


def export(learner: Learner, path: str | os.PathLike[str]) -> Path:
    """Write what the suffix of ``path`` says; replace an older file as a whole.

    - ``.safetensors``: the weights by name: ``model.load_state_dict(load_file(path))``.
    - ``.pt2``: from inputs to scores as a program, which ``torch.export.load(path).module()`` runs
      without the model's code.
    - ``.onnx``: the same for ONNX, checked against ``predict``.
    - ``.json``: what the inputs are, how they are prepared, and the classes. The other files have
      it, too: in the header, as ``labels.json`` among the extra files, in the metadata.

    Inputs of .pt2 and .onnx are as stored, uint8 [N, H, W, C] for pictures; normalisation is in
    the program (:func:`tmln.learner.exported_model.describe_export`). Adapters are merged into the
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
        content = WRITERS[path.suffix](learner)  # in memory: a full disk would end torch's own writer with an abort
    aside = path.with_name(f".{path.stem}.writing-{os.getpid()}{path.suffix}")
    with writing(path):
        try:
            with aside.open("wb", buffering=0) as file:
                write_all(file, content)
                os.fsync(file.fileno())
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
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
    log = logging.getLogger("torch.onnx")
    level = log.level
    try:
        log.setLevel(logging.ERROR)  # of operators that no model here has
        with warnings.catch_warnings():  # of torch's own, about torch
            warnings.simplefilter("ignore")
            program = torch.onnx.export(_trace(learner), (), output_names=["scores"], verbose=False)
    finally:
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
