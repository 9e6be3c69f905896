"""Classes that come: the head grows by their rows, and all that has its shape grows with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.distributed.sharding import REMEDY, is_sharded_model
from tmln.learner.head import candidates, find_head, resize
from tmln.methods import Growth, prepare_inputs
from tmln.seeds import seed_of
from tmln.streams.samples import Samples

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

MOST = 100_000  # outputs that labels without names may ask for: beyond, they are hardly the numbers of classes


def make_room(learner: Learner, samples: Samples, outputs: int) -> None:
    """So many outputs are needed: if the model has fewer, its head grows."""
    rows = [len(module.weight) for module in candidates(learner.model).values()]  # type: ignore[arg-type]
    if not rows or outputs <= min(rows):
        return
    x = prepare_inputs(learner.model, samples.gather(torch.arange(1))[0], learner.prepare)
    found = _outputs(learner.model, x)
    if found is None or outputs <= found:
        return
    if outputs > MOST and not learner.names:
        raise ValueError(
            f"label {outputs - 1}, but the model has {found} outputs, and labels without names count classes from 0 "
            "on: number them so, or name them by classes=[...]"
        )
    grow(learner, find_head(learner.model, x, learner.head), outputs)


@torch.no_grad()
def _outputs(model: nn.Module, x: Tensor) -> int | None:
    """None where the model does not take the sample: training will say so in its own words."""
    try:
        with preserve_model(model, training=False):
            return int(model(x).shape[1])
    except Exception:
        return None


def grow(learner: Learner, name: str, rows: int) -> Growth:
    """The layer called ``name`` gets so many rows, and every part follows."""
    if is_sharded_model(learner.model):
        raise ValueError(
            f"{name!r} would have to be given {rows} rows, and a head in shards does not change: make the model with "
            f"an output for every class that will come, or {REMEDY}"
        )
    prefix = "" if learner.scored is learner.model else "model"  # what parts are given may be wrapped
    seed = seed_of(learner.seed, f"head of {rows}")
    growth = resize(learner.scored, ".".join(filter(None, (prefix, name))), rows, seed)
    for part in learner.parts:
        part.grow(growth)
    if learner.initial is not None:
        unwrapped = {key.removeprefix(f"{prefix}."): value for key, value in growth.names.items()}
        learner.initial = replace(growth, names=unwrapped).grow_state(learner.initial, copy=True)
    return growth


def fit_head(learner: Learner, model_state: Mapping[str, Any]) -> None:
    """The model's head gets the rows that it has in a state, if it is the head alone that differs."""
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
    if name in candidates(learner.model) and len(counts) == 1:
        grow(learner, name, counts.pop())
