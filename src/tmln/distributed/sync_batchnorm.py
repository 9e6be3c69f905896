"""Batch norm by the rows of all ranks, as one process normalises: also on the CPU, which torch's own does not do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tmln.distributed.process_group import Ranks


class _Sum(torch.autograd.Function):
    """The sum over ranks, whose gradient is the sum over ranks."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks.sum_(value.clone())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks.sum_(gradients[0].clone()), None


def normalise(norm: _BatchNorm, ranks: Ranks, x: Tensor) -> Tensor:
    """What ``norm`` in training mode gives for this rank's rows, by mean and variance of the rows of all ranks.

    Each rank's own mean and sum of squares around it go to the others, in one message: squares around zero would lose
    what the mean is larger by.
    """
    norm._check_input_dim(x)
    values = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    axes, shape = [axis for axis in range(x.dim()) if axis != 1], [1, -1, *[1] * (x.dim() - 2)]
    count = values.new_tensor([values.numel() / max(1, values.shape[1])])
    mean = values.mean(axes)
    around = (values - mean.view(shape)).square().sum(axes)
    told = values.new_zeros(ranks.size, 2 * len(mean) + 1)
    told[ranks.rank] = torch.cat([mean, around, count])
    every: Tensor = _Sum.apply(told, ranks)  # type: ignore[no-untyped-call]
    means, squares, counts = every.split([len(mean), len(mean), 1], 1)
    total = counts.detach().sum()
    mean = (means * counts.detach()).sum(0) / total
    variance = (squares + counts.detach() * (means - mean).square()).sum(0) / total
    _remember(norm, mean.detach(), variance.detach(), float(total))
    scaled = (values - mean.view(shape)) * (variance + norm.eps).rsqrt().view(shape)
    if norm.affine:
        scaled = scaled * norm.weight.view(shape) + norm.bias.view(shape)
    found: Tensor = scaled.to(x.dtype)
    return found


@torch.no_grad()
def _remember(norm: _BatchNorm, mean: Tensor, variance: Tensor, count: float) -> None:
    if not norm.track_running_stats or norm.running_mean is None or norm.running_var is None:
        return
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), share)
    norm.running_var.lerp_((variance * (count / max(1.0, count - 1))).to(norm.running_var.dtype), share)


@contextmanager
def synced_statistics(model: nn.Module, ranks: Ranks) -> Iterator[None]:
    """Within the block batch norms that are in training mode normalise by all ranks' rows."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]
    for norm in norms:
        norm.forward = partial(normalise, norm, ranks)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


@torch.no_grad()
def average_statistics(model: nn.Module, ranks: Ranks) -> None:
    """Running statistics that each rank took of its own rows become their mean, the same on all."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]
    # as data: autograd keeps them, though a backward pass in training does not look at them
    values = [value.data for norm in norms for value in (norm.running_mean, norm.running_var) if value is not None]
    ranks.sum_all_(values)
    for value in values:
        value.div_(ranks.size)
