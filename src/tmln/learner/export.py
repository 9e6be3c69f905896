"""Export the model for programs without tmln: weights, an exported program, ONNX, or the labels."""

from __future__ import annotations

import importlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.distributed.sharding import gather_parameters
from tmln.methods import prepare_inputs
from tmln.models.lora import merge_adapters
from tmln.suggest import did_you_mean
from tmln.writing import write_all, writing

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

CLOSE = 1e-3  # by which the outputs of another runtime may differ, of the largest output


def export(learner: Learner, path: str | os.PathLike[str]) -> Path:
    """Write what the suffix of ``path`` says; replace an older file as a whole.

    - ``.safetensors``: the weights by name, with the classes in its header:
      ``model.load_state_dict(load_file(path))``.
    - ``.pt2``: the model as a program, which ``torch.export.load(path).module()`` runs without its
      code.
    - ``.onnx``: the same for ONNX, checked against the model's own outputs.
    - ``.json``: the labels, and the shape of the inputs.

    Inputs of the model are prepared ones, as ``learner.prepare`` makes them. Adapters are merged
    into the weights beside them.
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
    head = learner.answer.in_model(model, make_example(learner)) if learner.seen.transforms else nullcontext()
    with ExitStack() as stack:
        stack.enter_context(learner.weights.prediction_weights())
        stack.enter_context(gather_parameters(model))
        stack.enter_context(preserve_model(model, training=False))
        stack.enter_context(merge_adapters(model))
        names = set(model.state_dict())
        stack.enter_context(head)
        if path.suffix == ".safetensors" and set(model.state_dict()) != names:
            raise ValueError(
                f"{path.name}: the head of answer {learner.answer.name!r} is more than the weights of a layer; "
                "export to .pt2 or .onnx"
            )
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


def describe_labels(learner: Learner) -> dict[str, Any]:
    """Return the classes by index, and the shapes of a stored and of a prepared input."""
    count = max((len(learner.names), *(label + 1 for label in learner.classes)), default=0)
    stored = learner.seen.transforms or {"shape": None, "dtype": None}
    return {
        "classes": [learner.name_of(index) for index in range(count)],
        "stored": {"shape": stored["shape"], "dtype": stored["dtype"]},
        "input": list(make_example(learner).shape[1:]) if learner.seen.transforms else None,
    }


def make_example(learner: Learner, count: int = 2) -> Tensor:
    """Return artificial samples, prepared."""
    transforms = learner.seen.transforms
    if transforms is None:
        raise RuntimeError("nothing was learned yet, so that it is not known what inputs look like")
    dtype, shape = getattr(torch, transforms["dtype"]), (count, *transforms["shape"])
    ramp = torch.arange(torch.Size(shape).numel()) * 37 % 256
    stored = (ramp if dtype == torch.uint8 else ramp / 128 - 1).to(dtype).reshape(shape)
    return prepare_inputs(learner.model, stored, learner.prepare)


def check_onnx(learner: Learner, content: bytes) -> None:
    """Raise where onnxruntime gives other outputs than the model, for one sample or several."""
    onnxruntime = importlib.import_module("onnxruntime")
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (name,) = (given.name for given in session.get_inputs())
    for count in (1, 3):
        x = make_example(learner, count)
        with torch.no_grad():
            expected = learner.model(x).cpu().float()
        found = torch.from_numpy(session.run(None, {name: x.cpu().numpy()})[0]).float()
        off = float((found - expected).abs().max()) if found.shape == expected.shape else float("inf")
        if not off <= CLOSE * max(1.0, float(expected.abs().max())):
            raise RuntimeError(f"the ONNX file answers otherwise than the model, by {off:g}; export to .pt2 instead")


def _serialize_weights(learner: Learner) -> bytes:
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in learner.model.state_dict().items()}
    content: bytes = safetensors.torch.save(tensors, {"format": "pt", "labels": json.dumps(describe_labels(learner))})
    return content


def _serialize_labels(learner: Learner) -> bytes:
    return (json.dumps(describe_labels(learner), indent=2, ensure_ascii=False) + "\n").encode()


def _trace(model: nn.Module, x: Tensor) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1)
    return torch.export.export(model, (x.contiguous(),), dynamic_shapes=({0: batch},), strict=False)


def _serialize_program(learner: Learner) -> bytes:
    content = io.BytesIO()
    torch.export.save(_trace(learner.model, make_example(learner)), content)
    return content.getvalue()


def _serialize_onnx(learner: Learner) -> bytes:
    try:
        for name in ("onnxruntime", "onnxscript"):  # torch's exporter is written with the second
            importlib.import_module(name)
    except ImportError as error:
        raise ImportError("ONNX needs onnxscript and onnxruntime: pip install 'tmln[export]'") from error
    log = logging.getLogger("torch.onnx")
    level = log.level
    try:
        log.setLevel(logging.ERROR)  # of operators that no model here has
        with warnings.catch_warnings():  # of torch's own, about torch
            warnings.simplefilter("ignore")
            program = torch.onnx.export(_trace(learner.model, make_example(learner)), (), verbose=False)
    finally:
        log.setLevel(level)
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    check_onnx(learner, content)
    return content


WRITERS: dict[str, Callable[[Learner], bytes]] = {
    ".safetensors": _serialize_weights,
    ".pt2": _serialize_program,
    ".onnx": _serialize_onnx,
    ".json": _serialize_labels,
}
