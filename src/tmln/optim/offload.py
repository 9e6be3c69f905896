"""State that a step does not need waits in host memory: anchor, F, S-bar and the banked path.

What is left on the device are P and the path under way, 8 bytes a weight in float32 in place of 20. A boundary fetches
what it needs of one parameter, and lets go of it before the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from tmln.optim.precision import state_dtype

WAITING = ("anchor", "fisher", "sensitivity", "path")


def to_host(value: Tensor) -> Tensor:
    """Where there is more room; on the CPU it is there already."""
    return value.cpu()


def to_device(value: Tensor, like: Tensor) -> Tensor:
    """To where it is computed with."""
    return value.to(like.device)


def stowed(value: Tensor, group: dict[str, Any]) -> Tensor:
    """Where the state of this group waits."""
    return to_host(value) if group["offload"] else value


def fetched(state: dict[str, Tensor], key: str, group: dict[str, Any]) -> Tensor:
    """A state that waits, where the weights are."""
    return to_device(state[key], state["raw_path"]) if group["offload"] else state[key]


def parted(states: Mapping[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Without what waits: ``Optimizer.load_state_dict`` would put it all on the device first."""
    return {index: {k: v for k, v in state.items() if k not in WAITING} for index, state in states.items()}


def restore(optimizer: Optimizer, state_dict: Mapping[str, Any]) -> None:
    """After :func:`parted`: what waits, where it waits, in the type of the state, and all in the order it was saved in.

    A run that goes on writes the same bytes as one that was never stopped.
    """
    ids = (index for group in state_dict["param_groups"] for index in group["params"])
    pairs = ((p, group) for group in optimizer.param_groups for p in group["params"])
    for index, (p, group) in zip(ids, pairs, strict=True):
        for key, value in state_dict["state"].get(index, {}).items():
            state = optimizer.state[p]
            if key in WAITING:
                kept = value.detach().to(dtype=state_dtype(p), copy=True)
                state[key] = to_host(kept) if group["offload"] else to_device(kept, p)
            else:
                state[key] = state.pop(key)
