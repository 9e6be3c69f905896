"""In which type an optimizer keeps its sums: half-precision parameters need more digits than they have."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

HALF = (torch.float16, torch.bfloat16)


def state_dtype(p: Tensor) -> torch.dtype:
    """float32 for half-precision parameters, whose sums in 8 bits of mantissa would stop growing; else their own."""
    return torch.float32 if is_half(p) else p.dtype


def is_half(p: Tensor) -> bool:
    """float16 or bfloat16: sums over many steps are kept in float32 for it."""
    return p.dtype in HALF


def keep_state_dtype(optimizer: Optimizer, state_dict: dict[str, Any], but: Container[str] = ()) -> None:
    """After ``Optimizer.load_state_dict``, which casts all state to the parameter's type: back to the state's."""
    ids = [i for group in state_dict["param_groups"] for i in group["params"]]
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for i, p in zip(ids, params, strict=True):
        if is_half(p):
            for key, value in state_dict["state"].get(i, {}).items():
                if (
                    isinstance(value, Tensor) and key != "step" and key not in but
                ):  # a count, which torch leaves where it is
                    optimizer.state[p][key] = value.to(p.device, state_dtype(p), copy=True)
