"""The head: the layer whose rows are the model's outputs. It is found, and it gets more rows, or fewer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.methods import Growth
from tmln.suggest import did_you_mean

COUNTS = ("out_features", "num_classes", "num_labels", "n_classes")  # attributes that say how many outputs there are


def candidates(model: nn.Module) -> dict[str, nn.Module]:
    """Layers that may be a head, by name: with a matrix ``weight`` that has a row for each output.

    ``nn.Linear``, and what looks like it: a cosine head, timm's ``fc`` or ``classifier``, Hugging Face's ``score``.

    >>> list(candidates(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))))
    ['0', '2']
    """
    return {name: module for name, module in model.named_modules() if _rows(module) is not None}


def _rows(module: nn.Module) -> int | None:
    weight = module._parameters.get("weight")
    if weight is None or weight.dim() != 2 or isinstance(module, (nn.Embedding, nn.EmbeddingBag, nn.Bilinear)):
        return None
    return len(weight)


def find_head(model: nn.Module, x: Tensor, name: str | None = None) -> str:
    """The name of the layer that gives the output for ``x``, or within the one called ``name``.

    It is the one whose output is the model's. Where something still happens to it, a scale for instance, it is the
    only layer with outputs of that shape. The model comes back as it was.
    """
    found = candidates(model)
    if name is not None:
        return _named(model, name, found)
    said: dict[str, Tensor] = {}

    def remember(key: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                said[key] = output

        return hook

    handles = [module.register_forward_hook(remember(key)) for key, module in found.items()]
    try:
        with preserve_model(model, training=False), torch.no_grad():
            output = model(x)
    finally:
        for handle in handles:
            handle.remove()
    same = [key for key, value in said.items() if value.shape == output.shape and torch.equal(value, output)]
    alike = [key for key, value in said.items() if value.shape == output.shape]
    if same or len(alike) == 1:
        return (same or alike)[-1]
    raise ValueError(
        f"the head cannot be found: {'no layer gives' if not alike else 'several layers may give'} the "
        f"{output.shape[-1]} outputs; name it by head=, one of {listed(model)}"
    )


def _named(model: nn.Module, name: str, found: Mapping[str, nn.Module]) -> str:
    if name in found:
        return name
    inside = [key for key in found if key.startswith(f"{name}.")]
    if not inside:
        raise ValueError(
            f"head={name!r} is no layer with a matrix of weights{did_you_mean(name, found)} ({listed(model)})"
        )
    return inside[-1]


def listed(model: nn.Module) -> str:
    """The candidates in words, the last first: ``2 (10 outputs), 0 (128 outputs)``."""
    found = [f"{name or 'the model itself'} ({_rows(module)} outputs)" for name, module in candidates(model).items()]
    return ", ".join(reversed(found)) or "none: the model has no layer with a matrix of weights"


def resize(model: nn.Module, name: str, rows: int, seed: int) -> Growth:
    """The head gets so many rows, in new parameters: old rows to the bit, new ones as ``nn.Linear`` begins.

    ``model`` is the one that parts see, by whose names they know its tensors.
    """
    head = model.get_submodule(name)
    before = _rows(head)
    assert before is not None
    _refuse_shared(model, head, name)
    generator = torch.Generator().manual_seed(seed)
    bound = 1 / math.sqrt(max(1, head._parameters["weight"].shape[1]))  # type: ignore[union-attr]
    replaced: dict[Tensor, Tensor] = {}
    fresh: list[Tensor] = []
    for store in (head._parameters, head._buffers):
        for key, value in list(store.items()):
            if (
                value is None
                or value.dim() == 0
                or len(value) != before
                or (before == 1 and key not in ("weight", "bias"))
            ):
                continue
            made = _resized(value.detach(), rows, generator, bound if store is head._parameters else 0.0)
            if store is head._parameters:
                made = nn.Parameter(made, requires_grad=value.requires_grad)
                replaced[value] = made
            store[key] = made  # type: ignore[assignment]
            fresh.append(made)
    _tell(model, head, before, rows)
    ours = set(map(id, fresh))
    names = {key: value for key, value in model.state_dict(keep_vars=True).items() if id(value) in ours}
    return Growth(replaced, names, before, rows)


def _resized(value: Tensor, rows: int, generator: torch.Generator, bound: float) -> Tensor:
    made = torch.empty((rows, *value.shape[1:]), dtype=torch.float32).uniform_(-bound, bound, generator=generator)
    made = made.to(value.device, value.dtype)
    kept = min(rows, len(value))
    made[:kept] = value[:kept]
    return made


def _refuse_shared(model: nn.Module, head: nn.Module, name: str) -> None:
    mine = {id(p) for p in head._parameters.values() if p is not None}
    for other, module in model.named_modules():
        if module is not head and any(id(p) in mine for p in module._parameters.values()):
            raise ValueError(
                f"the head {name!r} shares its weights with {other!r}, so that it cannot grow alone; untie them"
            )


def _tell(model: nn.Module, head: nn.Module, before: int, rows: int) -> None:
    """Whatever counts the outputs counts on: the layer, the models around it, a Hugging Face configuration."""
    for module in model.modules():
        if head is not module and head not in module.modules():
            continue
        for place in (module, getattr(module, "config", None)):
            for count in COUNTS:
                if isinstance(value := getattr(place, count, None), int) and value == before:
                    setattr(place, count, rows)
