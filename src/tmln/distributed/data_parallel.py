"""Data-parallel training: each rank passes its rows of a batch, and every rank gets all outputs.

The loss of the full output is therefore the same on every rank. A rank's backward pass reaches its
own rows only; their gradient is multiplied by the number of ranks, and gradients are averaged, so
that other terms of the loss, which every rank computes in full, count once as well.
Batch normalisation uses the statistics of the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

from tmln.distributed.process_group import Ranks, is_sharded

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm


def has_batch_norm(model: nn.Module) -> bool:
    """Return whether batch normalisation is anywhere in the model."""
    return any(isinstance(module, BatchNorm) for module in model.modules())


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


class DataParallel(nn.Module):
    """A model whose forward pass takes the full batch on every rank and passes this rank's rows.

    Args:
        model: the model.
        ranks: the processes that share a batch.
        synced: whether batch norm normalises by the rows of all ranks, or by each rank's own.

    Dropout draws from a different seed on each rank, so masks depend on the number of ranks;
    nothing else does.
    """

    def __init__(self, model: nn.Module, ranks: Ranks, synced: bool = True) -> None:
        super().__init__()
        self.model, self.ranks, self.synced = model, ranks, synced

    def forward(self, x: Tensor) -> Tensor:
        ranks, total = self.ranks, len(x)
        if total < ranks.size:  # too few rows to share: each rank passes all
            full: Tensor = self.model(x)
            return full
        rows = ranks.rows(total)
        with self._own_seed(x.device), sync_batch_statistics(self.model, ranks) if self.synced else nullcontext():
            own: Tensor = self.model(x[rows])
        if not self.synced:
            average_running_statistics(self.model, ranks)
        if own.requires_grad:
            own.register_hook(lambda gradient: gradient * ranks.size)
        gathered = ranks.gather_rows(own, total)
        return torch.cat([gathered[: rows.start], own, gathered[rows.stop :]])

    @contextmanager
    def _own_seed(self, device: torch.device) -> Iterator[None]:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(int(torch.randint(2**62, ())) + self.ranks.rank)  # from a state that all ranks share
            before = _generator_states(device)
            yield
            has_drawn = not all(torch.equal(a, b) for a, b in zip(before, _generator_states(device), strict=True))
        if has_drawn:  # otherwise the state is that of a single process, which has drawn nothing either
            torch.randint(2**62, ())


def _generator_states(device: torch.device) -> list[Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


@torch.no_grad()
def average_gradients(parameters: Sequence[Tensor], ranks: Ranks) -> None:
    """Replace every ``.grad`` by its mean over the ranks; one that no rank has stays None."""
    if ranks.size == 1:
        return
    trained = [p for p in parameters if p.requires_grad and not is_sharded(p)]  # FSDP2 averages its shards itself
    if not trained:
        return
    reached = torch.tensor([p.grad is not None for p in trained], dtype=torch.float32, device=trained[0].device)
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
    ranks.sum_tensors_([*gradients, reached])
    torch._foreach_div_(gradients, ranks.size)
    for p, gradient, is_reached in zip(trained, gradients, reached.tolist(), strict=True):
        p.grad = gradient if is_reached else None


def check_identical_weights(model: nn.Module, ranks: Ranks) -> None:
    """Raise unless all ranks have the same weights to the bit; a difference would only grow."""
    if ranks.size == 1:
        return
    checksums = {name: _checksum(value) for name, value in model.state_dict().items() if not is_sharded(value)}
    index = ranks.find_difference([float(value) for value in checksums.values()])
    if index is not None:
        raise RuntimeError(
            f"{list(checksums)[index]!r} is not the same on all {ranks.size} ranks: a component of the method "
            "computes it differently on each, or their hardware differs; continue from the last checkpoint with one "
            "rank"
        )


def _checksum(value: Tensor) -> int:
    return crc32(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
