"""What the processes of a group know together: exact totals, one maximum, and a failure that all of them hear of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

# None is every process, where torch.distributed is initialised; "local" is this one alone, whatever there is.
Group = dist.ProcessGroup | Literal["local"] | None


@dataclass(frozen=True)
class Ranks:
    """The processes of a group, of which this is number ``rank``; one where there is no group.

    >>> ranks = ranks_of("local")
    >>> ranks.heard(lambda: 3)
    [3]
    """

    group: dist.ProcessGroup | None
    rank: int = 0
    size: int = 1

    def heard(self, work: Callable[[], T]) -> list[T]:
        """What ``work`` gives on each rank. Where it fails on one it fails on all: nobody waits for who is gone."""
        if self.size == 1:
            return [work()]
        return self._exchanged(work, lambda found: found)[0]

    def all_do(self, work: Callable[[], T]) -> T:
        """What ``work`` gives here, which stays here; where it fails on one rank it fails on all."""
        return work() if self.size == 1 else self._exchanged(work, lambda _: None)[1]

    def _exchanged(self, work: Callable[[], T], tell: Callable[[T], Any]) -> tuple[list[Any], T]:
        try:
            found = work()
        except Exception as reason:
            self._told((f"{type(reason).__name__}: {reason}", None))
            raise
        told = self._told((None, tell(found)))
        for rank, (failure, _) in enumerate(told):
            if failure is not None:
                raise RuntimeError(f"rank {rank} failed, so rank {self.rank} stops too: {failure}")
        return [value for _, value in told], found

    def _told(self, mine: tuple[str | None, Any]) -> list[tuple[str | None, Any]]:
        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, mine, group=self.group)
        return told

    def from_first(self, work: Callable[[], T]) -> T:
        """What ``work`` gives on the first rank, which alone does it; all are told."""
        if self.size == 1:
            return work()
        told: list[Any] = [self.all_do(lambda: work() if self.rank == 0 else None)]
        dist.broadcast_object_list(told, group=self.group, group_src=0)
        found: T = told[0]
        return found

    def rows(self, total: int) -> slice:
        """This rank's share of so many rows: rank after rank, as even as can be, maybe none.

        >>> [Ranks(None, rank, 3).rows(7) for rank in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
        """
        return slice(total * self.rank // self.size, total * (self.rank + 1) // self.size)

    def joined(self, here: Tensor, total: int) -> Tensor:
        """All ``total`` rows of which each rank has its share ``here``, the same on every rank; without gradients."""
        if self.size == 1:
            return here.detach()
        shares = [Ranks(None, rank, self.size).rows(total) for rank in range(self.size)]
        counts = [share.stop - share.start for share in shares]
        row = here.shape[1:]
        width = row.numel() * here.element_size()
        padded = torch.zeros(max(counts), width, dtype=torch.uint8, device=here.device)  # as bytes: any type goes
        padded[: len(here)] = here.detach().contiguous().view(len(here), row.numel()).view(torch.uint8)
        told = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(told, padded, group=self.group)
        every = torch.cat([rows[:count] for rows, count in zip(told, counts, strict=True)])
        return every.view(here.dtype).view(total, *row)

    def sum_all_(self, values: Sequence[Tensor]) -> None:
        """The sum over the ranks of each tensor, in place: one message for all of a type."""
        kinds = {(value.dtype, value.device) for value in values} if self.size > 1 else ()
        for kind in sorted(kinds, key=str):
            alike = [value for value in values if (value.dtype, value.device) == kind]
            flat = self.sum_(torch.cat([value.reshape(-1) for value in alike]))
            for value, found in zip(alike, flat.split([value.numel() for value in alike]), strict=True):
                value.copy_(found.view(value.shape))

    def sum_(self, value: Tensor) -> Tensor:
        """The sum over the ranks, in place, the same bits on each."""
        if self.size > 1:
            dist.all_reduce(value, group=self.group)
        return value

    def largest(self, values: Sequence[float]) -> list[float]:
        """Of each number the largest on any rank; one that is not a number counts as infinite."""
        if self.size == 1:
            return list(values)
        found = torch.tensor(values, dtype=torch.float64).nan_to_num(torch.inf, torch.inf, -torch.inf)
        if "nccl" in str(dist.get_backend(self.group)):
            found = found.cuda()
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.group)
        result: list[float] = found.tolist()
        return result

    def apart(self, values: Sequence[float]) -> int | None:
        """The first of these numbers that is not the same on all ranks."""
        highest = self.largest([*values, *(-value for value in values)])
        pairs = zip(highest[: len(values)], highest[len(values) :], strict=True)
        return next((index for index, (most, least) in enumerate(pairs) if most != -least), None)


ALONE = Ranks(None)


def ranks_of(group: Group) -> Ranks:
    """The ranks that are meant by ``group``."""
    if isinstance(group, str):
        if group != "local":
            raise ValueError(f"group must be None, 'local' or a process group, got {group!r}")
        return ALONE
    if not (dist.is_available() and dist.is_initialized()):
        return ALONE
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError("group: this process is not in it; only its members may call")
    return Ranks(group, rank, dist.get_world_size(group))


# -- tensors that lie in shards (FSDP2's and tensor parallel parameters) ----------------------------------------------


def is_sharded(value: Tensor) -> bool:
    """A DTensor: each rank holds a part of it."""
    return hasattr(value, "device_mesh")  # without an import that takes as long as torch's own


def whole(value: Tensor) -> Tensor:
    """All of it, on every rank; all ranks that have a part must ask."""
    full: Tensor = value.full_tensor() if is_sharded(value) else value  # type: ignore[attr-defined]
    return full


def part(value: Tensor) -> Tensor:
    """What lies here: the tensor itself, or this rank's part of it, of which changes are changes of the whole."""
    here: Tensor = value.to_local() if is_sharded(value) else value  # type: ignore[attr-defined]
    return here


def cut(value: Tensor, like: Tensor) -> Tensor:
    """This rank's part of ``value``, which every rank has whole, as ``like`` is cut: a tensor of its own."""
    return part(_replicated(value, like).redistribute(placements=like.placements)).clone()  # type: ignore[attr-defined]


def as_sharded(value: Tensor, like: Tensor) -> Tensor:
    """``value`` laid out as ``like``: cut if it is whole, dealt out anew if it was cut in another way."""
    if not is_sharded(like):
        return whole(value)
    if is_sharded(value):
        dealt: Tensor = value.redistribute(placements=like.placements)  # type: ignore[attr-defined]
        return dealt
    return assembled(cut(value, like), like)


def assembled(here: Tensor, like: Tensor) -> Tensor:
    """The tensor whose part on this rank is ``here``, sharded as ``like``."""
    from torch.distributed.tensor import DTensor

    found: Any = like
    return DTensor.from_local(
        here, found.device_mesh, found.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


def _replicated(value: Tensor, like: Tensor) -> Any:
    from torch.distributed.tensor import DTensor, Replicate

    mesh = like.device_mesh  # type: ignore[attr-defined]
    return DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)


class ShardValue(NamedTuple):
    """A number that a rank found in its part of the tensor ``of``."""

    of: Tensor
    value: float


def over_parts(found: Iterable[ShardValue], how: Literal["sum", "max"]) -> list[float]:
    """Each number over all parts of its tensor; a tensor that is not in parts keeps its own.

    One message for all tensors that are cut alike.
    """
    found = list(found)
    result = [number.value for number in found]
    alike: dict[Any, list[int]] = {}
    for index, number in enumerate(found):
        if is_sharded(number.of):
            tensor: Any = number.of
            dims = tuple(not place.is_replicate() for place in tensor.placements)
            alike.setdefault((tensor.device_mesh, dims), []).append(index)
    for (mesh, dims), places in alike.items():
        numbers = torch.tensor([result[k] for k in places], dtype=torch.float64, device=mesh.device_type)
        for k, value in zip(places, over_mesh(numbers, mesh, dims, how).tolist(), strict=True):
            result[k] = value
    return result


def over_mesh(value: Tensor, mesh: Any, dims: Sequence[bool], how: Literal["sum", "max"]) -> Tensor:
    """``value`` summed, or its maximum taken, along those dimensions of the mesh."""
    from torch.distributed.tensor import DTensor, Partial, Replicate

    placements = [Partial(how) if dim else Replicate() for dim in dims]
    return DTensor.from_local(value, mesh, placements, run_check=False).full_tensor()
