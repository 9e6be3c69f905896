"""What a method holds in memory beside the model: by the formulas that its parts declare, and as found in them.

Sizes are in units: N, a sum for every trainable weight, and W, the same in the weights' own precision; K, the sum over
layers of a^2 + g^2 with a the inputs (bias included) and g the outputs of a layer; a frozen copy of the model; its
running statistics; what the memory stores of a sample; and numbers of which there is one for every tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from tmln.curvature.kfac_layers import factor_elements
from tmln.learner import Learner
from tmln.methods import MemoryTerm
from tmln.optim.precision import state_dtype
from tmln.streams.samples import Samples

SHOWN = {
    "N": "N",
    "W": "N",
    "K": "K",
    "model": "model",
    "statistics": "statistics",
    "samples": "samples",
    "logits": "logits",
    "counts": "",
    "doubles": "",
}  # unit -> as text; the last two are too few to be told


def units_of(model: nn.Module, samples: Samples, classes: int) -> dict[str, int]:
    """Bytes of each unit."""
    weights = [p for p in model.parameters() if p.requires_grad]
    own, kept = (max((size(p) for p in weights), default=4) for size in (Tensor.element_size, _sum_size))
    x, y = samples.gather(torch.arange(1))
    return {
        "N": sum(p.numel() * _sum_size(p) for p in weights),
        "W": sum(p.numel() * p.element_size() for p in weights),
        "K": kept * factor_elements(model),
        "model": sum(t.numel() * t.element_size() for t in chain(model.parameters(), model.buffers())),
        "statistics": sum(t.numel() * _sum_size(t) for t in model.buffers()),
        "samples": x.numel() * x.element_size() + y.element_size(),
        "logits": own * classes,
        "counts": 4 * len(weights),
        "doubles": 8,
    }


def _sum_size(p: Tensor) -> int:
    """Bytes of an element of a sum for this weight: of weights in half precision they are kept in single."""
    return state_dtype(p).itemsize


def bytes_of(terms: list[MemoryTerm] | None, units: Mapping[str, int]) -> int | None:
    """What the terms come to; None where nobody knows."""
    return None if terms is None else sum(term.times * units[term.unit] for term in terms)


def as_text(terms: list[MemoryTerm]) -> str:
    """``5N + 500 samples``; ``0`` of nothing."""
    counts: dict[str, int] = {}
    for term in terms:
        unit = SHOWN[term.unit]
        counts[unit] = counts.get(unit, 0) + term.times
    order = [unit for unit in dict.fromkeys(SHOWN.values()) if unit and unit in counts]
    return " + ".join(_times(counts[unit], unit) for unit in order) or "0"


def _times(count: int, unit: str) -> str:
    return (unit if count == 1 else f"{count}{unit}") if len(unit) == 1 else f"{count} {unit}"


def held(learner: Learner) -> dict[str, int]:
    """Bytes of the tensors that the parts hold beside the model's weights, buffers and gradients, each counted once."""
    seen = {_place(t) for p in learner.model.parameters() for t in (p, p.grad) if t is not None}
    seen |= {_place(buffer) for buffer in learner.model.buffers()}
    sizes: dict[str, int] = {}
    for family, part in learner.by_family.items():
        for name, tensor in _tensors(part, family, set()):
            if _place(tensor) not in seen:
                seen.add(_place(tensor))
                sizes[name] = sizes.get(name, 0) + tensor.untyped_storage().nbytes()
    return sizes


def saved_bytes(learner: Learner) -> int:
    """Bytes of the tensors in a checkpoint of the parts, generators' states included."""
    return sum(
        tensor.numel() * tensor.element_size() for _, tensor in _tensors(learner.state_dict()["parts"], "", set())
    )


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors(thing: Any, name: str, visited: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Every tensor within, named by the attributes that lead to it; an optimizer's state by its keys."""
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
            ((_named(name, key), value) for state in thing.state.values() for key, value in state.items()),
            ((_named(name, key), value) for key, value in rest.items()),
        )
    elif isinstance(thing, Mapping):
        inner = ((name, value) for value in thing.values())
    elif isinstance(thing, (list, tuple, set)):
        inner = ((name, value) for value in thing)
    else:
        inner = ((_named(name, key), value) for key, value in getattr(thing, "__dict__", {}).items())
    for inner_name, value in list(inner):
        yield from _tensors(value, inner_name, visited)


_NO_CONTENT = (str, bytes, int, float, type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, type(None))


def _named(name: str, key: str) -> str:
    return name if key.startswith("_") or key == "optimizer" else f"{name}.{key}"
