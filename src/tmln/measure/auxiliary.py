"""What a method holds in memory beside the model: by formula from its settings, and as found in its parts.

Sizes are in units: N, the trainable weights; K, the sum over layers of a^2 + g^2 with a the inputs (bias included)
and g the outputs of a layer; a frozen copy of the model; and what the memory stores of a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from tmln.curvature.kfac_layers import factor_sizes, kfac_layers
from tmln.learner import Learner
from tmln.parts import read_settings
from tmln.recipes import FAMILIES, Recipe
from tmln.streams.samples import Samples

# not in a checkpoint: made from the rest, kept so that a step need not make it again
DERIVED = ("preconditioner", "kfac.inverses")


@dataclass(frozen=True)
class Term:
    """``times`` a unit, under the name by which :func:`held` finds it."""

    name: str
    unit: str
    times: int = 1


def _weights(*names: str) -> list[Term]:
    return [Term(name, "N") for name in names]


def _sgd(settings: Any) -> list[Term]:
    return _weights("momentum_buffer") if settings.momentum else []


def _tmln(settings: Any) -> list[Term]:
    terms = _weights("anchor", "sensitivity", "raw_path", "preconditioner")
    terms += _weights("fisher") if settings.geometry != "euclidean" else []
    terms += _weights("path") if settings.fisher_refresh_every else []  # what was walked under the old metric
    return terms + _sgd(settings)


def _agem(settings: Any) -> list[Term]:
    inner = read_settings(FAMILIES["step"][settings.inner], {})
    terms = [Term(f"inner.{t.name}", t.unit, t.times) for t in FORMULAS["step", settings.inner](inner)]
    terms += _weights("inner.way") if settings.inner == "tmln" else []  # walked by gradients that were projected
    return [Term("checks", "samples", settings.capacity), *terms]


def _samples(settings: Any) -> list[Term]:
    return [Term("memory", "samples", settings.capacity)]


FORMULAS: dict[tuple[str, str], Callable[[Any], list[Term]]] = {
    ("replay", "none"): lambda settings: [],
    ("replay", "er"): _samples,
    ("replay", "er-ace"): _samples,
    ("replay", "der++"): lambda settings: [*_samples(settings), Term("memory", "logits", settings.capacity)],
    ("penalty", "none"): lambda settings: [],
    ("penalty", "ewc++"): lambda settings: _weights("anchor", "importance", "fisher"),
    ("penalty", "rwalk"): lambda settings: _weights(
        "anchor", "importance", "fisher", "path.recent", "origin", "score", "scores"
    ),
    ("penalty", "ewc"): lambda settings: _weights("anchor", "importance"),
    ("penalty", "si"): lambda settings: _weights("anchor", "importance", "path.recent"),
    ("penalty", "mas"): lambda settings: _weights("anchor", "importance"),
    ("penalty", "lwf"): lambda settings: [Term("teacher", "model")],
    ("step", "sgd"): _sgd,
    ("step", "tmln"): _tmln,
    ("step", "upgd"): lambda settings: _weights("utility"),
    ("step", "ocar"): lambda settings: [Term("kfac.factors", "K"), Term("kfac.inverses", "K")],
    ("step", "a-gem"): _agem,
}


def terms_of(recipe: Recipe) -> list[Term] | None:
    """What the method holds in the middle of a task after the first; None where a part has no formula.

    Path integrals take another N from their 1024th step in a task on, for the sum of the steps before.
    """
    terms: list[Term] = []
    for family in FAMILIES:
        part, settings = recipe.part(family)
        if (family, part.name) not in FORMULAS:
            return None
        found = FORMULAS[family, part.name](settings)
        terms += [Term(f"{family}.{term.name}", term.unit, term.times) for term in found]
    if recipe.step.name == "tmln" and recipe.penalty.name != "none":
        terms += _weights("step.way")  # walked beside the penalty
    return terms


def units_of(model: nn.Module, samples: Samples, classes: int) -> dict[str, int]:
    """Bytes of each unit."""
    weights = [p for p in model.parameters() if p.requires_grad]
    element = max((p.element_size() for p in weights), default=4)
    x, y = samples.gather(torch.arange(1))
    return {
        "N": sum(p.numel() * p.element_size() for p in weights),
        "K": element * sum(a * a + g * g for a, g in map(factor_sizes, kfac_layers(model).values())),
        "model": sum(t.numel() * t.element_size() for t in chain(model.parameters(), model.buffers())),
        "samples": x.numel() * x.element_size() + y.element_size(),
        "logits": element * classes,
    }


def as_text(terms: list[Term]) -> str:
    """``5N + 500 samples``; ``0`` of nothing."""
    counts: dict[str, int] = {}
    for term in terms:
        counts[term.unit] = counts.get(term.unit, 0) + term.times
    order = [unit for unit in ("N", "K", "model", "samples", "logits") if unit in counts]
    return " + ".join(_times(counts[unit], unit) for unit in order) or "0"


def _times(count: int, unit: str) -> str:
    return (unit if count == 1 else f"{count}{unit}") if len(unit) == 1 else f"{count} {unit}"


def held(learner: Learner) -> dict[str, int]:
    """Bytes of the tensors that the parts hold beside the model's weights, buffers and gradients, each counted once."""
    seen = {_place(t) for p in learner.model.parameters() for t in (p, p.grad) if t is not None}
    seen |= {_place(buffer) for buffer in learner.model.buffers()}
    sizes: dict[str, int] = {}
    for family, part in zip(FAMILIES, learner.parts, strict=True):
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
