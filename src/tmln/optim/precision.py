"""The dtype of optimizer state: sums for half-precision parameters are kept in float32."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

HALF = (torch.float16, torch.bfloat16)


def state_dtype(p: Tensor) -> torch.dtype:
    """Return float32 for half precision, whose sums would stop growing, else the own dtype."""
    return torch.float32 if is_half(p) else p.dtype


def compact_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of half as many bytes with the same range: bfloat16 for float32."""
    return {torch.float32: torch.bfloat16, torch.float64: torch.float32}.get(dtype, dtype)


def is_half(p: Tensor) -> bool:
    """Return whether the parameter is float16 or bfloat16."""
    return p.dtype in HALF


def keep_state_dtype(optimizer: Optimizer, state_dict: dict[str, Any], but: Container[str] = ()) -> None:
    """Restore the dtype of state, which ``Optimizer.load_state_dict`` casts to the parameter's."""
    ids = [i for group in state_dict["param_groups"] for i in group["params"]]
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for i, p in zip(ids, params, strict=True):
        for key, value in state_dict["state"].get(i, {}).items() if is_half(p) else ():
            if isinstance(value, Tensor) and key != "step" and key not in but:  # torch leaves counts where they are
                optimizer.state[p][key] = value.to(p.device, state_dtype(p), copy=True)
