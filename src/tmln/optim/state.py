"""The state of optimizers: its dtype, and its rows where a parameter is replaced by a longer one.

Sums for half-precision parameters are kept in float32; old rows of a parameter keep their bits.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

COPIES = ("anchor", "departure")  # copies of weights: in new rows they are the new weights
DERIVED = ("preconditioner",)  # computed from the rest
STACKS = ("directions",)  # several tensors of the weight's shape
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


@torch.no_grad()
def grow_tensor(value: Tensor, new: Tensor, copy: bool = False) -> Tensor:
    """Return ``value`` with as many rows as ``new``; added ones are zero, or (``copy``) ``new``'s.

    >>> grow_tensor(torch.tensor([1.0, 2.0]), torch.tensor([5.0, 6.0, 7.0]))
    tensor([1., 2., 0.])
    >>> grow_tensor(torch.tensor([1.0, 2.0]), torch.tensor([5.0, 6.0, 7.0]), copy=True)
    tensor([1., 2., 7.])
    """
    # on the value's device: state may be kept in host memory
    grown = torch.zeros_like(new, dtype=value.dtype, device=value.device, requires_grad=False)
    if copy:
        grown.copy_(new)
    rows = min(len(value), len(new))
    grown[:rows] = value[:rows]
    return grown


def has_parameter(optimizer: Optimizer, p: Tensor) -> bool:
    """Return whether ``p`` is a parameter of the optimizer."""
    return any(q is p for group in optimizer.param_groups for q in group["params"])


def replace_parameter(optimizer: Optimizer, old: Tensor, new: Tensor) -> None:
    """Put ``new`` in place of ``old`` in its group, with all state of the shape of ``old``.

    Works for any optimizer that keeps state by parameter. In new rows sums are zero, and copies of
    weights are the new weights. Fewer rows cut the state.
    """
    if not has_parameter(optimizer, old):
        raise KeyError(
            f"replace(old, new): old, of shape {tuple(old.shape)}, is not a parameter of this optimizer; was it "
            "replaced before?"
        )
    if new is not old and has_parameter(optimizer, new):
        raise ValueError("replace(old, new): new is a parameter of this optimizer already; do not add it besides")
    for group in optimizer.param_groups:
        group["params"][:] = [new if p is old else p for p in group["params"]]
    state: dict[str, Any] | None = optimizer.state.pop(old, None)
    if state:
        optimizer.state[new] = {
            key: _grow_entry(key, value, old, new) for key, value in state.items() if key not in DERIVED
        }


def _grow_entry(key: str, value: Any, old: Tensor, new: Tensor) -> Any:
    if key in STACKS:
        rows = [grow_tensor(row, new) for row in value]
        return torch.stack(rows) if rows else value.new_zeros(0, *new.shape)
    return grow_tensor(value, new, key in COPIES) if isinstance(value, Tensor) and value.shape == old.shape else value


def check_replacement(old: Tensor, new: Tensor) -> None:
    """Raise unless ``new`` has at least as many rows as ``old``, of the same width."""
    if old.dim() != new.dim() or old.shape[1:] != new.shape[1:] or (old.dim() and len(new) < len(old)):
        raise ValueError(
            f"replace(old, new) carries state over to more rows of the same width: old has the shape "
            f"{tuple(old.shape)}, new {tuple(new.shape)}; for another layer make a new optimizer"
        )


def check_in_model(model: nn.Module, new: Tensor) -> None:
    """Raise unless ``new`` is in the model, where optimizers with factors look for its layer."""
    if not any(p is new for p in model.parameters()):
        raise ValueError("replace(old, new): new is not in the model yet; put the new layer there first")
