"""Collective operations over a process group, and helpers for tensors in shards (DTensor)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

# None: all processes, where torch.distributed is initialised. "local": this process alone.
Group = dist.ProcessGroup | Literal["local"] | None


@dataclass(frozen=True)
class Ranks:
    """The processes of a group, seen from process number ``rank``; one process without a group.

    >>> ranks = ranks_of("local")
    >>> ranks.gather_objects(lambda: 3)
    [3]
    """

    group: dist.ProcessGroup | None
    rank: int = 0
    size: int = 1

    def gather_objects(self, work: Callable[[], T], call: str = "") -> list[T]:
        """Return the result of ``work`` on each rank; if it raises on one rank, all ranks raise.

        ``call`` is what the user called: ranks that are in different calls raise, too.
        """
        if self.size == 1:
            return [work()]
        return self._exchange(work, lambda result: result, call)[0]

    def run_together(self, work: Callable[[], T]) -> T:
        """Return this rank's result of ``work``; if it raises on one rank, all ranks raise."""
        return work() if self.size == 1 else self._exchange(work, lambda _: None)[1]

    def _exchange(self, work: Callable[[], T], choose: Callable[[T], Any], call: str = "") -> tuple[list[Any], T]:
        try:
            result = work()
        except Exception as reason:
            self._gather((f"{type(reason).__name__}: {reason}", call, None))
            raise
        gathered = self._gather((None, call, choose(result)))
        for rank, (failure, other, _) in enumerate(gathered):
            if failure is not None:
                raise RuntimeError(f"rank {rank} failed, so rank {self.rank} stops too: {failure}")
            if other != call:
                raise RuntimeError(
                    f"rank {rank} is in {other or 'another call'} while rank {self.rank} is in "
                    f"{call or 'another call'}: all ranks compute together, so call both on every rank"
                )
        return [value for *_, value in gathered], result

    def _gather(self, own: tuple[str | None, str, Any]) -> list[tuple[str | None, str, Any]]:
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, own, group=self.group)
        return gathered

    def broadcast_object(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the first rank only and return its result on every rank."""
        if self.size == 1:
            return work()
        box: list[Any] = [self.run_together(lambda: work() if self.rank == 0 else None)]
        dist.broadcast_object_list(box, group=self.group, group_src=0)
        result: T = box[0]
        return result

    def rows(self, total: int) -> slice:
        """Return this rank's rows of ``total``: contiguous, as even as possible, maybe empty.

        >>> [Ranks(None, rank, 3).rows(7) for rank in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
        """
        return slice(total * self.rank // self.size, total * (self.rank + 1) // self.size)

    def gather_rows(self, own: Tensor, total: int) -> Tensor:
        """Return all ``total`` rows; ``own`` are this rank's :meth:`rows`. No gradients pass."""
        if self.size == 1:
            return own.detach()
        slices = [Ranks(None, rank, self.size).rows(total) for rank in range(self.size)]
        counts = [rows.stop - rows.start for rows in slices]
        row = own.shape[1:]
        width = row.numel() * own.element_size()
        # as bytes, so that every dtype works
        padded = torch.zeros(max(counts), width, dtype=torch.uint8, device=own.device)
        padded[: len(own)] = own.detach().contiguous().view(len(own), row.numel()).view(torch.uint8)
        gathered = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(gathered, padded, group=self.group)
        joined = torch.cat([rows[:count] for rows, count in zip(gathered, counts, strict=True)])
        return joined.view(own.dtype).view(total, *row)

    def sum_tensors_(self, values: Sequence[Tensor]) -> None:
        """Sum each tensor over the ranks in place, with one message per dtype and device."""
        kinds = {(value.dtype, value.device) for value in values} if self.size > 1 else ()
        for kind in sorted(kinds, key=str):
            alike = [value for value in values if (value.dtype, value.device) == kind]
            flat = self.sum_(torch.cat([value.reshape(-1) for value in alike]))
            for value, total in zip(alike, flat.split([value.numel() for value in alike]), strict=True):
                value.copy_(total.view(value.shape))

    def sum_(self, value: Tensor) -> Tensor:
        """Sum over the ranks in place; every rank gets the same bits."""
        if self.size > 1:
            dist.all_reduce(value, group=self.group)
        return value

    def reduce_max(self, values: Sequence[float]) -> list[float]:
        """Return the maximum of each number over the ranks; NaN counts as infinite."""
        if self.size == 1:
            return list(values)
        maxima = torch.tensor(values, dtype=torch.float64).nan_to_num(torch.inf, torch.inf, -torch.inf)
        if "nccl" in str(dist.get_backend(self.group)):
            maxima = maxima.cuda()
        dist.all_reduce(maxima, dist.ReduceOp.MAX, group=self.group)
        result: list[float] = maxima.tolist()
        return result

    def find_difference(self, values: Sequence[float]) -> int | None:
        """Return the index of the first number that differs between ranks, or None."""
        reduced = self.reduce_max([*values, *(-value for value in values)])
        pairs = zip(reduced[: len(values)], reduced[len(values) :], strict=True)
        return next((index for index, (high, low) in enumerate(pairs) if high != -low), None)


SINGLE = Ranks(None)


def ranks_of(group: Group) -> Ranks:
    """Return the ranks of ``group``: a process group, ``"local"``, or None for all processes."""
    if isinstance(group, str):
        if group != "local":
            raise ValueError(f"group must be None, 'local' or a process group, got {group!r}")
        return SINGLE
    if not (dist.is_available() and dist.is_initialized()):
        return SINGLE
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError("group: this process is not in it; only its members may call")
    return Ranks(group, rank, dist.get_world_size(group))


# -- tensors in shards: parameters under FSDP2 and tensor parallelism ------------------------


def is_sharded(value: Tensor) -> bool:
    """Return whether the tensor is a DTensor, of which each rank holds a part."""
    return hasattr(value, "device_mesh")  # importing DTensor takes as long as importing torch


def gather_full(value: Tensor) -> Tensor:
    """Return the full tensor on every rank; all ranks that hold a part must call."""
    full: Tensor = value.full_tensor() if is_sharded(value) else value  # type: ignore[attr-defined]
    return full


def local_part(value: Tensor) -> Tensor:
    """Return this rank's part of a sharded tensor (sharing its memory), or the tensor itself."""
    own: Tensor = value.to_local() if is_sharded(value) else value  # type: ignore[attr-defined]
    return own


def local_shard(value: Tensor, like: Tensor) -> Tensor:
    """Return a copy of this rank's part of the full tensor ``value``, sharded as ``like``."""
    from torch.distributed.tensor import DTensor, Replicate

    mesh: Any = like.device_mesh  # type: ignore[attr-defined]
    full = DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return local_part(full.redistribute(placements=like.placements)).clone()  # type: ignore[attr-defined]


def shard_like(value: Tensor, like: Tensor) -> Tensor:
    """Return ``value`` laid out as ``like``: gathered, sharded or redistributed as needed."""
    if not is_sharded(like):
        return gather_full(value)
    if is_sharded(value):
        moved: Tensor = value.redistribute(placements=like.placements)  # type: ignore[attr-defined]
        return moved
    return from_local_part(local_shard(value, like), like)


def from_local_part(own: Tensor, like: Tensor) -> Tensor:
    """Return the tensor, sharded as ``like``, whose part on this rank is ``own``."""
    from torch.distributed.tensor import DTensor

    sharded: Any = like
    return DTensor.from_local(
        own, sharded.device_mesh, sharded.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


class ShardValue(NamedTuple):
    """A number computed from this rank's part of the tensor ``of``."""

    of: Tensor
    value: float


def reduce_parts(values: Iterable[ShardValue], how: Literal["sum", "max"]) -> list[float]:
    """Reduce each number over all parts of its tensor; numbers of unsharded tensors stay.

    Tensors that are sharded alike share one message.
    """
    values = list(values)
    result = [number.value for number in values]
    alike: dict[Any, list[int]] = {}
    for index, number in enumerate(values):
        if is_sharded(number.of):
            tensor: Any = number.of
            dims = tuple(not place.is_replicate() for place in tensor.placements)
            alike.setdefault((tensor.device_mesh, dims), []).append(index)
    for (mesh, dims), indices in alike.items():
        numbers = torch.tensor([result[k] for k in indices], dtype=torch.float64, device=mesh.device_type)
        for k, value in zip(indices, reduce_over_mesh(numbers, mesh, dims, how).tolist(), strict=True):
            result[k] = value
    return result


def reduce_over_mesh(value: Tensor, mesh: Any, dims: Sequence[bool], how: Literal["sum", "max"]) -> Tensor:
    """Return the sum or maximum of ``value`` along the chosen dimensions of the device mesh."""
    from torch.distributed.tensor import DTensor, Partial, Replicate

    placements = [Partial(how) if dim else Replicate() for dim in dims]
    return DTensor.from_local(value, mesh, placements, run_check=False).full_tensor()
