"""WiSE-FT (Wortsman et al. 2022): weights between a model and what was tuned from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tmln.integrations.language_retention import Measured, load_pair

GRID = tuple(k / 10 for k in range(11))


def interpolate(base: Mapping[str, Tensor], tuned: Mapping[str, Tensor], alpha: float) -> dict[str, Tensor]:
    """Return (1 - alpha) * base + alpha * tuned; what is no floating point number is the tuned one.

    >>> interpolate({"w": torch.tensor([0.0, 2.0])}, {"w": torch.tensor([1.0, 4.0])}, 0.25)
    {'w': tensor([0.2500, 2.5000])}
    """
    if odd := set(base) ^ set(tuned):
        raise ValueError(f"only one of both models has {sorted(odd)[0]!r}: they are no base and a model tuned from it")
    found = {}
    for name, first in base.items():
        second = tuned[name].to(first.device)
        if first.shape != second.shape:
            raise ValueError(f"{name} has the shape {tuple(first.shape)} in the base and {tuple(second.shape)} tuned")
        mixed = torch.lerp(first.float(), second.float(), alpha).to(first.dtype)
        found[name] = mixed if first.is_floating_point() else second.clone()
    return found


def choose_alpha(
    model: nn.Module,
    base: Mapping[str, Tensor],
    tuned: Mapping[str, Tensor],
    losses: Callable[[], tuple[float, float]],
    grid: Sequence[float] = GRID,
) -> tuple[float, list[tuple[float, float, float]]]:
    """Return the alpha with the lowest sum of losses on old and new data, and all readings.

    Args:
        model: gets the weights of every alpha in turn, and keeps those of the best.
        base: its weights before tuning.
        tuned: its weights after tuning.
        losses: measures ``model`` on old and on new data.
        grid: the alphas.
    """
    readings = []
    for alpha in grid:
        model.load_state_dict(interpolate(base, tuned, alpha))
        readings.append((alpha, *losses()))
    best = min(readings, key=lambda reading: reading[1] + reading[2])[0]
    model.load_state_dict(interpolate(base, tuned, best))
    return best, readings


def load_weights(base: str, tuned: str) -> tuple[Measured, dict[str, Tensor], dict[str, Tensor]]:
    """Load a plain model, its weights before tuning, and those after, adapters merged."""
    from transformers import AutoModelForCausalLM

    before, after = load_pair(tuned, base)
    first, second = before.model, after.model
    if first is second:
        whole: Any = second
        second, first = whole.merge_and_unload(), AutoModelForCausalLM.from_pretrained(base)
    states = [{name: value.detach().clone() for name, value in one.state_dict().items()} for one in (first, second)]
    return Measured(second, before.tokenizer), states[0], states[1]
