"""Memory that a method needs besides the model: declared by its components, and measured.

Sizes are in units: N, one number per trainable weight; H, half of its bytes; W, the same as N in
the weights' precision;
K, the sum over layers of a^2 + g^2 with a inputs (bias included) and g outputs; a copy of the
model; its running statistics; a stored sample; numbers of which there is one per tensor; and
numbers for d features, the inputs of the last linear layer, and C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from tmln.curvature.kfac_layers import factor_elements
from tmln.curvature.preserve_state import preserve_model
from tmln.learner import Learner
from tmln.methods import Features, MemoryTerm, prepare_inputs
from tmln.optim.state import state_dtype
from tmln.streams.samples import Samples

SHOWN = {
    "N": "N",
    "H": "N",
    "W": "N",
    "K": "K",
    "model": "model",
    "statistics": "statistics",
    "samples": "samples",
    "logits": "logits",
    "dC": "dC",
    "d^2C": "d^2 C",
    "d^2": "d^2",
    "d": "d",
    "C": "C",
    "numbers": "numbers",
    "counts": "",
    "doubles": "",
}  # unit -> as text; the last two are negligible


def measure_width(learner: Learner, samples: Samples) -> int | None:
    """Return the number of features of the layer that a component names; None if none names one."""
    settings = (part.settings for part in (learner.answer, learner.replay, learner.weights))
    layer = next((name for one in settings if (name := getattr(one, "layer", None)) is not None), None)
    if layer is None:
        return None
    inputs = prepare_inputs(learner.model, samples.gather(torch.arange(1))[0], learner.prepare)
    with torch.no_grad(), preserve_model(learner.model, training=False):
        return Features(layer, "answer.layer").extract(learner.model, inputs)[1].shape[1]


def measure_units(model: nn.Module, samples: Samples, classes: int, width: int | None = None) -> dict[str, int]:
    """Return the bytes of each unit; ``width``: of the features, else inputs of the last layer."""
    weights = [p for p in model.parameters() if p.requires_grad]
    own, kept = (max((size(p) for p in weights), default=4) for size in (Tensor.element_size, _sum_size))
    x, y = samples.gather(torch.arange(1))
    features = [layer.in_features for layer in model.modules() if isinstance(layer, nn.Linear)][-1:]
    d = sum(features) if width is None else width  # 0 without a linear layer, where there are none
    return {
        "N": sum(p.numel() * _sum_size(p) for p in weights),
        "H": sum(p.numel() * _sum_size(p) // 2 for p in weights),
        "W": sum(p.numel() * p.element_size() for p in weights),
        "K": kept * factor_elements(model),
        "model": sum(t.numel() * t.element_size() for t in chain(model.parameters(), model.buffers())),
        "statistics": sum(t.numel() * _sum_size(t) for t in model.buffers()),
        "samples": x.numel() * x.element_size() + y.element_size(),
        "logits": own * classes,
        "dC": 4 * d * classes,
        "d^2C": 4 * d**2 * classes,
        "d^2": 4 * d**2,
        "d": 4 * d,
        "C": 4 * classes,
        "numbers": 4,
        "counts": 4 * len(weights),
        "doubles": 8,
    }


def _sum_size(p: Tensor) -> int:
    """Return the bytes of a state element: for weights in half precision it is single precision."""
    return state_dtype(p).itemsize


def count_bytes(terms: list[MemoryTerm] | None, units: Mapping[str, int]) -> int | None:
    """Return the bytes of these terms; None if they are unknown."""
    return None if terms is None else sum(term.times * units[term.unit] for term in terms)


def format_terms(terms: list[MemoryTerm]) -> str:
    """Return ``5N + 500 samples``, or ``0`` for nothing."""
    counts: dict[str, float] = {}
    for term in terms:
        unit = SHOWN[term.unit]
        counts[unit] = counts.get(unit, 0) + term.times * (0.5 if term.unit == "H" else 1)
    order = [unit for unit in dict.fromkeys(SHOWN.values()) if unit and unit in counts]
    return " + ".join(_times(counts[unit], unit) for unit in order) or "0"


def _times(count: float, unit: str) -> str:
    number = int(count) if count == int(count) else count
    return (unit if count == 1 else f"{number}{unit}") if len(unit) == 1 else f"{number} {unit}"


def find_held_bytes(learner: Learner) -> dict[str, int]:
    """Return the bytes of tensors held by components, without weights, buffers and gradients.

    Each tensor is counted once.
    """
    seen = {_storage_pointer(t) for p in learner.model.parameters() for t in (p, p.grad) if t is not None}
    seen |= {_storage_pointer(buffer) for buffer in learner.model.buffers()}
    sizes: dict[str, int] = {}
    for family, part in learner.components.items():
        for name, tensor in _walk_tensors(part, family, set()):
            if _storage_pointer(tensor) not in seen:
                seen.add(_storage_pointer(tensor))
                sizes[name] = sizes.get(name, 0) + tensor.untyped_storage().nbytes()
    return sizes


def count_saved_bytes(learner: Learner) -> int:
    """Return the bytes of the tensors in a checkpoint of the components, generators included."""
    return sum(
        tensor.numel() * tensor.element_size() for _, tensor in _walk_tensors(learner.state_dict()["parts"], "", set())
    )


def _storage_pointer(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _walk_tensors(thing: Any, name: str, visited: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in an object, named by the attributes that lead to it."""
    if isinstance(thing, Tensor):
        yield name, thing
        return
    if id(thing) in visited or isinstance(thing, _NO_CONTENT):
        return
    visited.add(id(thing))
    inner: Iterator[tuple[str, Any]]
    if isinstance(thing, nn.Module):
        inner = ((name, tensor) for tensor in chain(thing.parameters(), thing.buffers()))
    elif isinstance(thing, torch.optim.Optimizer):
        rest = {key: value for key, value in vars(thing).items() if key not in ("state", "param_groups")}
        inner = chain(
            ((_join_name(name, key), value) for state in thing.state.values() for key, value in state.items()),
            ((_join_name(name, key), value) for key, value in rest.items()),
        )
    elif isinstance(thing, Mapping):
        inner = ((name, value) for value in thing.values())
    elif isinstance(thing, (list, tuple, set)):
        inner = ((name, value) for value in thing)
    else:
        # "memory" last: a step may refer by it to a memory that has another name
        items = sorted(getattr(thing, "__dict__", {}).items(), key=lambda item: item[0] == "memory")
        inner = ((_join_name(name, key), value) for key, value in items)
    for inner_name, value in list(inner):
        yield from _walk_tensors(value, inner_name, visited)


_NO_CONTENT = (str, bytes, int, float, type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, type(None))


def _join_name(name: str, key: str) -> str:
    return name if key.startswith("_") or key == "optimizer" else f"{name}.{key}"
