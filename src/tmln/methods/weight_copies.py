"""A second set of weights and running statistics: taken, moved towards the model's, and put in the model's place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tmln.curvature.preserve_state import eval_mode
from tmln.distributed.process_group import gather_full, is_sharded
from tmln.optim.precision import state_dtype


def moving(model: nn.Module) -> dict[str, Tensor]:
    """What training moves, by name: trainable weights, and the buffers that a checkpoint holds."""
    return {name: t for name, t in model.state_dict(keep_vars=True).items() if t.requires_grad or not _is_weight(t)}


def _is_weight(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.Parameter)


@torch.no_grad()
def copy_of(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """A copy, in single precision of what is in half: small shares of it would be lost to rounding."""
    return {name: t.detach().to(state_dtype(t), copy=True) for name, t in values.items()}


@torch.no_grad()
def lerp_(mean: dict[str, Tensor], values: dict[str, Tensor], share: float) -> None:
    """mean += share * (values - mean), in one call over all tensors; what only counts is copied."""
    floats = [name for name, t in mean.items() if t.is_floating_point()]
    to = [values[name].detach() for name in floats]
    at = [mean[name] for name in floats]
    if any(a.dtype is not t.dtype for a, t in zip(at, to, strict=True)):
        to = [t.to(a.dtype) for a, t in zip(at, to, strict=True)]
    if floats:
        torch._foreach_lerp_(at, to, share)
    for name, t in mean.items():
        if not t.is_floating_point():
            t.copy_(values[name])


@torch.no_grad()
def put(values: dict[str, Tensor], into: dict[str, Tensor]) -> None:
    """The model's weights and statistics become these, in place; what was not copied stays."""
    for name, value in values.items():
        if name in into and into[name].shape == value.shape:
            into[name].copy_(value)


@contextmanager
def instead(values: dict[str, Tensor], of: dict[str, Tensor]) -> Iterator[None]:
    """Within the block the model has these; on leaving, its own again, to the bit."""
    own = {name: t.detach().clone() for name, t in of.items()}
    put(values, of)
    try:
        yield
    finally:
        put(own, of)


def everything(model: nn.Module) -> dict[str, Tensor]:
    """All that a checkpoint holds of it, by name."""
    return dict(model.state_dict(keep_vars=True))


@torch.no_grad()
def said_with(values: Mapping[str, Tensor], model: nn.Module, x: Tensor) -> Tensor:
    """The model's output with these weights in place of its own, in eval mode; it comes back as it was."""
    own = everything(model)
    weights = {name: value.to(own[name].dtype) for name, value in values.items()}
    with eval_mode(model):
        if not any(map(is_sharded, weights.values())):
            said: Tensor = functional_call(model, weights, (x,))
            return said
        # as data: a backward pass that is still to come knows of no change, and there is none when it comes
        with instead(weights, {name: own[name].data for name in weights}):
            output: Tensor = model(x)
            return output


def check_finite(values: dict[str, Tensor], what: str) -> None:
    """An average over, or a merger with, weights that are no numbers is none either."""
    for name, value in values.items():
        if value.is_floating_point() and not bool(gather_full(value.isfinite().all())):
            raise FloatingPointError(
                f"{what} of {name} is not finite at the task's end: training diverged; lower lr or raise the damping"
            )
