"""The head, the layer whose rows are the model's outputs: find it and grow it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.distributed.sharding import REMEDY, is_sharded_model
from tmln.learner.forward import MaskedModel
from tmln.methods import Growth, prepare_inputs
from tmln.seeds import seed_of
from tmln.streams.samples import Samples
from tmln.suggest import did_you_mean

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

COUNT_ATTRIBUTES = ("out_features", "num_classes", "num_labels", "n_classes")  # say how many outputs there are
MAX_UNNAMED = 100_000  # outputs that labels without names may ask for: beyond, they are hardly the numbers of classes


def find_candidates(model: nn.Module) -> dict[str, nn.Module]:
    """Return layers that may be a head, by name: with a matrix ``weight``, a row per output.

    ``nn.Linear``, and what looks like it: a cosine head, timm's ``fc`` or ``classifier``, Hugging
    Face's ``score``.

    >>> list(find_candidates(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))))
    ['0', '2']
    """
    return {name: module for name, module in model.named_modules() if _count_rows(module) is not None}


def _count_rows(module: nn.Module) -> int | None:
    weight = dict(module.named_parameters(recurse=False)).get("weight")
    if weight is None or weight.dim() != 2 or isinstance(module, (nn.Embedding, nn.EmbeddingBag, nn.Bilinear)):
        return None
    return len(weight)


def find_head(model: nn.Module, x: Tensor, name: str | None = None) -> str:
    """Return the name of the layer that gives the output for ``x``, or within layer ``name``.

    It is the one whose output is the model's. Where something still happens to it, a scale for
    instance, it is the only layer with outputs of that shape. The model is left as it was.
    """
    found = find_candidates(model)
    if name is not None:
        inside = [name] if name in found else [key for key in found if key.startswith(f"{name}.")]
        if not inside:
            raise ValueError(
                f"head={name!r} is no layer with a matrix of weights{did_you_mean(name, found)} "
                f"({describe_candidates(model)})"
            )
        return inside[-1]
    outputs: dict[str, Tensor] = {}

    def make_hook(key: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                outputs[key] = output

        return hook

    handles = [module.register_forward_hook(make_hook(key)) for key, module in found.items()]
    try:
        with preserve_model(model, training=False), torch.no_grad():
            output = model(x)
    finally:
        for handle in handles:
            handle.remove()
    alike = [key for key, value in outputs.items() if value.shape == output.shape]
    same = [key for key in alike if torch.equal(outputs[key], output)]
    if same or len(alike) == 1:
        return (same or alike)[-1]
    raise ValueError(
        f"the head cannot be found: {'no layer gives' if not alike else 'several layers may give'} the "
        f"{output.shape[-1]} outputs; name it by head=, one of {describe_candidates(model)}"
    )


def describe_candidates(model: nn.Module) -> str:
    """Return the candidates as text, the last first: ``2 (10 outputs), 0 (128 outputs)``."""
    every = find_candidates(model).items()
    found = [f"{name or 'the model itself'} ({_count_rows(module)} outputs)" for name, module in every]
    return ", ".join(reversed(found)) or "none: the model has no layer with a matrix of weights"


def resize_head(model: nn.Module, name: str, rows: int, seed: int) -> Growth:
    """Give the head so many rows in new parameters; old rows keep their bits.

    ``model`` is the one that components see, by whose names they know its tensors.
    """
    head = model.get_submodule(name)
    before = _count_rows(head)
    assert before is not None
    _refuse_shared(model, head, name)
    generator = torch.Generator().manual_seed(seed)
    bound = 1 / math.sqrt(max(1, head.get_parameter("weight").shape[1]))
    replaced: dict[Tensor, Tensor] = {}
    new_ids: set[int] = set()
    tensors = [*head.named_parameters(recurse=False), *head.named_buffers(recurse=False)]
    for key, value in tensors:
        if value.dim() == 0 or len(value) != before or (before == 1 and key not in ("weight", "bias")):
            continue
        trained = isinstance(value, nn.Parameter)
        made = _resize_rows(value.detach(), rows, generator, bound if trained else 0.0)
        if trained:
            made = nn.Parameter(made, requires_grad=value.requires_grad)
            replaced[value] = made
        setattr(head, key, made)
        new_ids.add(id(made))
    _update_counts(model, head, before, rows)
    names = {key: value for key, value in model.state_dict(keep_vars=True).items() if id(value) in new_ids}
    return Growth(replaced, names, before, rows)


def grow_head(learner: Learner, name: str, rows: int) -> Growth:
    """Give the layer ``name`` so many rows; the state of every component follows."""
    trained = learner.trained
    if is_sharded_model(learner.model):
        raise ValueError(
            f"{name!r} would have to be given {rows} rows, and a head in shards does not change: make the model with "
            f"an output for every class that will come, or {REMEDY}"
        )
    prefix = "model" if isinstance(trained.masked, MaskedModel) else ""  # what components see may be wrapped
    full_name = ".".join(filter(None, (prefix, name)))
    growth = resize_head(trained.masked, full_name, rows, seed_of(learner.seed, f"head of {rows}"))
    for component in learner.components.values():
        component.grow(growth)
    if trained.first is not None:
        unwrapped = {key.removeprefix(f"{prefix}."): value for key, value in growth.names.items()}
        trained.first = replace(growth, names=unwrapped).grow_state(trained.first, copy=True)
    return growth


def grow_for(learner: Learner, samples: Samples, outputs: int) -> None:
    """Grow the head if the model has fewer than ``outputs`` outputs."""
    rows = [len(module.weight) for module in find_candidates(learner.model).values()]  # type: ignore[arg-type]
    if not rows or outputs <= min(rows):
        return
    x = prepare_inputs(learner.model, samples.gather(torch.arange(1))[0], learner.prepare)
    found = _count_outputs(learner.model, x)
    if found is None or outputs <= found:
        return
    if outputs > MAX_UNNAMED and not learner.names:
        raise ValueError(
            f"label {outputs - 1}, but the model has {found} outputs, and labels without names count classes from 0 "
            "on: number them so, or name them by classes=[...]"
        )
    grow_head(learner, find_head(learner.model, x, learner.head), outputs)


def fit_head(learner: Learner, model_state: Mapping[str, Any]) -> None:
    """Give the model's head the rows that it has in a state, if only the head differs."""
    own = learner.model.state_dict(keep_vars=True)
    others = {
        key: value
        for key, value in model_state.items()
        if key in own and isinstance(value, Tensor) and value.shape != own[key].shape
    }
    layers = {key.rpartition(".")[0] for key in others}
    if len(layers) != 1 or any(v.shape[1:] != own[key].shape[1:] for key, v in others.items()):
        return  # nothing to do, or another architecture, which loading refuses
    (name,), counts = layers, {len(value) for value in others.values()}
    if name in find_candidates(learner.model) and len(counts) == 1:
        grow_head(learner, name, counts.pop())


@torch.no_grad()
def _count_outputs(model: nn.Module, x: Tensor) -> int | None:
    """Return the number of outputs; None where the model does not take the sample."""
    try:
        with preserve_model(model, training=False):
            return int(model(x).shape[1])
    except Exception:
        return None


def _resize_rows(value: Tensor, rows: int, generator: torch.Generator, bound: float) -> Tensor:
    made = torch.empty((rows, *value.shape[1:]), dtype=torch.float32).uniform_(-bound, bound, generator=generator)
    made = made.to(value.device, value.dtype)
    kept = min(rows, len(value))
    made[:kept] = value[:kept]
    return made


def _refuse_shared(model: nn.Module, head: nn.Module, name: str) -> None:
    mine = {id(p) for p in head.parameters(recurse=False)}
    for other, module in model.named_modules():
        if module is not head and any(id(p) in mine for p in module.parameters(recurse=False)):
            raise ValueError(
                f"the head {name!r} shares its weights with {other!r}, so that it cannot grow alone; untie them"
            )


def _update_counts(model: nn.Module, head: nn.Module, before: int, rows: int) -> None:
    """Update attributes that count outputs, a Hugging Face configuration's included."""
    for module in model.modules():
        if head is not module and head not in module.modules():
            continue
        for place in (module, getattr(module, "config", None)):
            for count in COUNT_ATTRIBUTES:
                if isinstance(value := getattr(place, count, None), int) and value == before:
                    setattr(place, count, rows)
