"""Copies of a model: averages of its weights and statistics, and frozen teachers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from tmln.curvature.preserve_state import eval_mode
from tmln.distributed.process_group import gather_full, is_sharded, shard_like
from tmln.optim.state import state_dtype


def trained_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return what training changes: trainable weights, and the buffers of a checkpoint."""
    tensors = model.state_dict(keep_vars=True).items()
    return {name: t for name, t in tensors if t.requires_grad or not isinstance(t, nn.Parameter)}


def all_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights and buffers that a checkpoint holds, by name."""
    return dict(model.state_dict(keep_vars=True))


@torch.no_grad()
def copy_tensors(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a copy, in float32 of half precision, which would round small shares away."""
    return {name: t.detach().to(state_dtype(t), copy=True) for name, t in values.items()}


@torch.no_grad()
def lerp_(mean: dict[str, Tensor], values: dict[str, Tensor], share: float) -> None:
    """Compute mean += share * (values - mean) in one call over all tensors; integers are copied."""
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
def assign(values: dict[str, Tensor], into: dict[str, Tensor]) -> None:
    """Copy these values into the model's tensors of the same name and shape, in place."""
    for name, value in values.items():
        if name in into and into[name].shape == value.shape:
            into[name].copy_(value)


@contextmanager
def swap_in(values: dict[str, Tensor], into: dict[str, Tensor]) -> Iterator[None]:
    """Put these values into the model's tensors within the block, then restore its own."""
    own = {name: t.detach().clone() for name, t in into.items()}
    assign(values, into)
    try:
        yield
    finally:
        assign(own, into)


@torch.no_grad()
def output_with(values: Mapping[str, Tensor], model: nn.Module, x: Tensor) -> Tensor:
    """Return the output in eval mode with these weights; the model keeps its own."""
    own = all_tensors(model)
    weights = {name: value.to(own[name].dtype) for name, value in values.items()}
    with eval_mode(model):
        if not any(map(is_sharded, weights.values())):
            found: Tensor = functional_call(model, weights, (x,))
            return found
        # through .data: autograd must not see a change of weights that a later backward pass needs
        with swap_in(weights, {name: own[name].data for name in weights}):
            output: Tensor = model(x)
            return output


def check_finite(values: dict[str, Tensor], what: str) -> None:
    """Raise FloatingPointError if weights to be averaged or merged are not finite."""
    for name, value in values.items():
        if value.is_floating_point() and not bool(gather_full(value.isfinite().all())):
            raise FloatingPointError(f"{what} of {name} is not finite at the task's end: training diverged; lower lr")


def distillation(output: Tensor, target: Tensor, temperature: float) -> Tensor:
    """Return KL(softmax(target/T) || softmax(output/T)), mean over samples, without factor T^2.

    The cross entropy of Li and Hoiem (2017) minus the entropy of the target: the same gradient, and
    zero where output and target agree.
    """
    expected = F.log_softmax(target / temperature, dim=1)
    return F.kl_div(F.log_softmax(output / temperature, dim=1), expected, reduction="batchmean", log_target=True)


def freeze(model: nn.Module) -> nn.Module:
    """Return a copy in eval mode that does not learn.

    Of a sharded model its weights alone, in the same shards.
    """
    inner: nn.Module = getattr(model, "_orig_mod", model)  # of a compiled model
    if any(map(is_sharded, inner.parameters())):
        return _ShardedTeacher(inner)
    return copy.deepcopy(inner).eval().requires_grad_(False)


class _ShardedTeacher(nn.Module):
    """Earlier weights of a sharded model, which cannot be copied.

    Its forward pass puts them into the model.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.values = {name: t.detach().clone() for name, t in all_tensors(model).items()}
        self.live = (model,)  # in a tuple, so that it is not registered as a submodule

    def forward(self, x: Tensor) -> Tensor:
        return output_with(self.values, self.live[0], x)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        return self.values

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        self.values = {name: shard_like(state_dict[name], own) for name, own in self.values.items()}


class TeacherMixin:
    """A teacher copied from ``model``, with ``teacher_state`` for ``state_names``."""

    model: nn.Module
    teacher: nn.Module | None = None

    @property
    def teacher_state(self) -> dict[str, Tensor]:
        """The teacher's tensors; empty without one."""
        return {} if self.teacher is None else dict(self.teacher.state_dict())

    @teacher_state.setter
    def teacher_state(self, state: dict[str, Tensor]) -> None:
        self.teacher = freeze(self.model) if state else None
        if self.teacher is not None:
            self.teacher.load_state_dict(state)
