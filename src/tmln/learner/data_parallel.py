"""A training pass dealt out to ranks: each passes its rows of the batch, and all have the output of the whole.

So the loss, whatever it is, is that of one process, on every rank; a rank's backward pass reaches its own rows only.
What a rank's rows contribute is counted as often as there are ranks, and gradients are averaged: then all else that a
loss may depend on (weights themselves, a pass that was not dealt out), which every rank has whole, counts once as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from zlib import crc32

import torch
from torch import Tensor, nn

from tmln.distributed.process_group import Ranks, is_sharded
from tmln.distributed.sync_batchnorm import average_statistics, synced_statistics
from tmln.learner.closure import random_states


class Dealt(nn.Module):
    """``model``, of whose input every rank has all rows, and passes its own.

    ``synced``: batch norm normalises by all ranks' rows; else by each rank's own, which is another network. Dropout and
    the like draw by a seed of each rank's own: their masks, and nothing else, depend on how many ranks there are.
    """

    def __init__(self, model: nn.Module, ranks: Ranks, synced: bool = True) -> None:
        super().__init__()
        self.model, self.ranks, self.synced = model, ranks, synced

    def forward(self, x: Tensor) -> Tensor:
        ranks, total = self.ranks, len(x)
        if total < ranks.size:  # too few to be dealt out: each rank passes all
            whole: Tensor = self.model(x)
            return whole
        rows = ranks.rows(total)
        with self._own_draws(x.device), synced_statistics(self.model, ranks) if self.synced else nullcontext():
            here: Tensor = self.model(x[rows])
        if not self.synced:
            average_statistics(self.model, ranks)
        if here.requires_grad:
            here.register_hook(lambda gradient: gradient * ranks.size)
        every = ranks.joined(here, total)
        return torch.cat([every[: rows.start], here, every[rows.stop :]])

    @contextmanager
    def _own_draws(self, device: torch.device) -> Iterator[None]:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(int(torch.randint(2**62, ())) + self.ranks.rank)  # by a state that all ranks have
            before = random_states(device)
            yield
            drew = not all(torch.equal(a, b) for a, b in zip(before, random_states(device), strict=True))
        if drew:  # else the state is that of one process, which has drawn nothing, either
            torch.randint(2**62, ())


@torch.no_grad()
def average_gradients(parameters: Sequence[Tensor], ranks: Ranks) -> None:
    """The mean over the ranks of every ``.grad``; one that no rank has stays None. One message."""
    if ranks.size == 1:
        return
    there = [p for p in parameters if p.requires_grad and not is_sharded(p)]  # of shards, the pass itself did
    if not there:
        return
    reached = torch.tensor([p.grad is not None for p in there], dtype=torch.float32, device=there[0].device)
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in there]
    ranks.sum_all_([*found, reached])
    torch._foreach_div_(found, ranks.size)
    for p, gradient, anywhere in zip(there, found, reached.tolist(), strict=True):
        p.grad = gradient if anywhere else None


def check_same(model: nn.Module, ranks: Ranks) -> None:
    """An error if the ranks' weights are not the same to the bit: what differs once goes apart for good."""
    if ranks.size == 1:
        return
    marks = {name: _mark(value) for name, value in model.state_dict().items() if not is_sharded(value)}
    place = ranks.apart([float(mark) for mark in marks.values()])
    if place is not None:
        raise RuntimeError(
            f"{list(marks)[place]!r} is not the same on all {ranks.size} ranks: a part of the method makes it "
            "otherwise on each, or their hardware differs; go on from the last checkpoint with one rank"
        )


def _mark(value: Tensor) -> int:
    return crc32(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
