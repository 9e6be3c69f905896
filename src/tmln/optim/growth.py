"""A parameter that took another's place, with more rows: its state follows it, the old rows to the bit."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tmln.optim.preconditioner import parameter_names

COPIES = ("anchor", "departure")  # of the weights themselves: in new rows they are the new weights
DERIVED = ("preconditioner",)  # made anew from the rest
STACKS = ("directions",)  # several of the weights' shape, one behind the other


@torch.no_grad()
def grow_tensor(value: Tensor, new: Tensor, copy: bool = False) -> Tensor:
    """``value``, of the rows there were, for those of ``new``: zero where they came, or (``copy``) ``new`` itself.

    >>> follow(torch.tensor([1.0, 2.0]), torch.tensor([5.0, 6.0, 7.0]))
    tensor([1., 2., 0.])
    >>> follow(torch.tensor([1.0, 2.0]), torch.tensor([5.0, 6.0, 7.0]), copy=True)
    tensor([1., 2., 7.])
    """
    made = torch.zeros_like(
        new, dtype=value.dtype, device=value.device, requires_grad=False
    )  # state may wait elsewhere
    if copy:
        made.copy_(new)
    rows = min(len(value), len(new))
    made[:rows] = value[:rows]
    return made


def has_parameter(optimizer: Optimizer, p: Tensor) -> bool:
    """Is it one of the optimizer's parameters?"""
    return any(q is p for group in optimizer.param_groups for q in group["params"])


def replace_parameter(optimizer: Optimizer, old: Tensor, new: Tensor) -> None:
    """``new`` takes the place of ``old`` in its group, and all state of the shape of ``old`` goes with it.

    Works for any optimizer whose state is kept by parameter: sums begin at zero in new rows, copies of the weights
    at the new weights. Fewer rows cut the state; whether that is meant is the caller's to ask.
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
            key: _followed(key, value, old, new) for key, value in state.items() if key not in DERIVED
        }


def _followed(key: str, value: Any, old: Tensor, new: Tensor) -> Any:
    if key in STACKS:
        rows = [grow_tensor(row, new) for row in value]
        return torch.stack(rows) if rows else value.new_zeros(0, *new.shape)
    return grow_tensor(value, new, key in COPIES) if isinstance(value, Tensor) and value.shape == old.shape else value


def check_replacement(old: Tensor, new: Tensor) -> None:
    """Before anything changes: more rows, or as many, of the same width."""
    if old.dim() != new.dim() or old.shape[1:] != new.shape[1:] or (old.dim() and len(new) < len(old)):
        raise ValueError(
            f"replace(old, new) carries state over to more rows of the same width: old has the shape "
            f"{tuple(old.shape)}, new {tuple(new.shape)}; for another layer make a new optimizer"
        )


def check_in_model(model: nn.Module, new: Tensor) -> None:
    """For optimizers that find what belongs to a parameter by its layer."""
    if not any(p is new for p in model.parameters()):
        raise ValueError("replace(old, new): new is not in the model yet; put the new layer there first")


def check_nothing_lost(optimizer: Optimizer, model: nn.Module | None = None) -> None:
    """Raise where a parameter gets no gradient because the model trains another one, unknown here, in its place.

    Asked for when some parameter has no gradient. An optimizer need not know its ``model``: it is found by the
    parameters that do have one. A head that merely rests (one of several, or frozen) is still in the model.
    """
    everything = [p for group in optimizer.param_groups for p in group["params"]]
    silent = [p for p in everything if p.grad is None and p.requires_grad]
    resting = frozenset(map(id, silent))
    if not resting or resting == getattr(optimizer, "_resting", None):
        return
    known = set(map(id, everything))
    moving = [p for p in everything if p.grad is not None]
    family = {id(p): p for top in ([model] if model is not None else find_models(moving)) for p in top.parameters()}
    strange = [p for p in family.values() if p.requires_grad and p.grad is not None and id(p) not in known]
    lost = [p for p in silent if id(p) not in family]
    if strange and lost:
        raise RuntimeError(
            f"{parameter_names(optimizer)[lost[0]]} of shape {tuple(lost[0].shape)} is no longer in the model, and the "
            f"model trains one of shape {tuple(strange[0].shape)} that this optimizer does not know; nothing was "
            "stepped. After replacing a layer call optimizer.replace(old_parameter, new_parameter) for each of its "
            "parameters"
        )
    optimizer._resting = resting  # type: ignore[attr-defined]  # looked at: not again at every step


def find_models(moving: Iterable[Tensor]) -> list[nn.Module]:
    """The outermost modules that hold any of these parameters."""
    modules = [found for found in gc.get_objects() if issubclass(type(found), nn.Module)]
    parents: dict[int, list[nn.Module]] = {}
    for module in modules:
        for child in vars(module).get("_modules", {}).values():
            parents.setdefault(id(child), []).append(module)
    wanted = set(map(id, moving))
    climbing = [m for m in modules if any(id(p) in wanted for p in vars(m).get("_parameters", {}).values())]
    seen: set[int] = set()
    tops: list[nn.Module] = []
    while climbing:
        module = climbing.pop()
        if id(module) not in seen:
            seen.add(id(module))
            above = parents.get(id(module), [])
            climbing += above
            tops += [] if above else [module]
    return tops
