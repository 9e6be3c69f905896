"""Batch normalisation over the rows of all ranks; unlike torch's SyncBatchNorm also on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tmln.distributed.process_group import Ranks

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm


class _Sum(torch.autograd.Function):
    """The sum over ranks; its gradient is the sum of gradients over ranks."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks.sum_(value.clone())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks.sum_(gradients[0].clone()), None


def normalise_across_ranks(norm: BatchNorm, ranks: Ranks, x: Tensor) -> Tensor:
    """Return ``norm(x)`` in training mode, with mean and variance over the rows of all ranks.

    Ranks exchange their means and sums of squares around them in one message: sums of squares
    around zero would lose precision where the mean is large.
    """
    values = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    axes, shape = [axis for axis in range(x.dim()) if axis != 1], [1, -1, *[1] * (x.dim() - 2)]
    count = values.new_tensor([values.numel() / max(1, values.shape[1])])
    mean = values.mean(axes)
    squares = (values - mean.view(shape)).square().sum(axes)
    own = values.new_zeros(ranks.size, 2 * len(mean) + 1)
    own[ranks.rank] = torch.cat([mean, squares, count])
    gathered: Tensor = _Sum.apply(own, ranks)  # type: ignore[no-untyped-call]
    all_means, all_squares, counts = gathered.split([len(mean), len(mean), 1], 1)
    total = counts.detach().sum()
    mean = (all_means * counts.detach()).sum(0) / total
    variance = (all_squares + counts.detach() * (all_means - mean).square()).sum(0) / total
    _update_running_statistics(norm, mean.detach(), variance.detach(), float(total))
    scaled = (values - mean.view(shape)) * (variance + norm.eps).rsqrt().view(shape)
    if norm.affine:
        scaled = scaled * norm.weight.view(shape) + norm.bias.view(shape)
    result: Tensor = scaled.to(x.dtype)
    return result


@torch.no_grad()
def _update_running_statistics(norm: BatchNorm, mean: Tensor, variance: Tensor, count: float) -> None:
    if not norm.track_running_stats or norm.running_mean is None or norm.running_var is None:
        return
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), share)
    norm.running_var.lerp_((variance * (count / max(1.0, count - 1))).to(norm.running_var.dtype), share)


@contextmanager
def sync_batch_statistics(model: nn.Module, ranks: Ranks) -> Iterator[None]:
    """Normalise by the rows of all ranks in batch norms in training mode, within the block."""
    norms = [module for module in model.modules() if isinstance(module, BatchNorm) and module.training]
    for norm in norms:
        norm.forward = partial(normalise_across_ranks, norm, ranks)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


@torch.no_grad()
def average_running_statistics(model: nn.Module, ranks: Ranks) -> None:
    """Replace each rank's running statistics by their mean over the ranks."""
    norms = [module for module in model.modules() if isinstance(module, BatchNorm) and module.training]
    # .data: autograd has saved these tensors, though backward in training mode does not read them
    values = [value.data for norm in norms for value in (norm.running_mean, norm.running_var) if value is not None]
    ranks.sum_tensors_(values)
    for value in values:
        value.div_(ranks.size)
