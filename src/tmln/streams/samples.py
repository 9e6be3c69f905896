"""Inputs and labels read by index: in memory, memory-mapped, or computed when they are read."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from tmln.data.image_files import pick_evenly

T = TypeVar("T")
UNKNOWN_LABEL = -1  # of samples for tests that are of no class


class Source(Protocol):
    """A source of N inputs of equal ``shape``, read in batches."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one sample, channels first."""

    def __len__(self) -> int: ...

    def take(self, rows: Tensor) -> Tensor:
        """Return a batch, in the order of ``rows``."""


@dataclass(frozen=True, eq=False)
class TensorSource:
    """A tensor [N, ...], in memory or over a memory-mapped file.

    With ``channels_last`` the tensor is [N, H, W, C], and batches are [B, C, H, W] in channels_last
    layout: whole images are copied, where a permuted tensor would be read pixel by pixel.
    """

    tensor: Tensor
    channels_last: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one sample, channels first."""
        shape = tuple(self.tensor.shape[1:])
        return (shape[-1], *shape[:-1]) if self.channels_last else shape

    def __len__(self) -> int:
        return len(self.tensor)

    def take(self, rows: Tensor) -> Tensor:
        """Return a copy of these rows, [B, C, H, W] for images."""
        batch = self.tensor.index_select(0, rows)
        return batch.permute(0, 3, 1, 2) if self.channels_last else batch


@dataclass(frozen=True, eq=False)
class MappedSource:
    """Another source seen through a deterministic function that keeps the shape of each input."""

    source: Source
    function: Callable[[Tensor], Tensor]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the other source."""
        return self.source.shape

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: Tensor) -> Tensor:
        """Return the function of the batch, computed in every call."""
        return self.function(self.source.take(rows))


@dataclass(frozen=True, eq=False)
class JoinedSource:
    """Several sources in sequence; all inputs have one shape and type."""

    sources: tuple[Source, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape that all sources share."""
        return self.sources[0].shape

    def __len__(self) -> int:
        return sum(map(len, self.sources))

    def take(self, rows: Tensor) -> Tensor:
        """Read each source's rows and put them into the order of ``rows``."""
        ends = torch.tensor([len(source) for source in self.sources]).cumsum(0)
        owner = torch.bucketize(rows, ends, right=True)
        parts, places = [], []
        for index in torch.unique(owner).tolist():
            place = (owner == index).nonzero().squeeze(1)
            start = int(ends[index]) - len(self.sources[index])
            parts.append(self.sources[index].take(rows[place] - start))
            places.append(place)
        if not parts:
            return self.sources[0].take(rows)
        # Sorting the places restores the order of the rows.
        order = torch.cat(places).argsort()
        layout = torch.channels_last if _is_channels_last(parts[0]) else torch.contiguous_format
        return torch.cat(parts).index_select(0, order).contiguous(memory_format=layout)


def _is_channels_last(x: Tensor) -> bool:
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


@dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """``rows`` of a source with their labels ``y``; ``gather`` reads a batch."""

    source: Source
    y: Tensor
    rows: Tensor

    def __post_init__(self) -> None:
        if self.y.dtype != torch.int64 or self.y.dim() != 1:
            raise TypeError(f"labels are int64 [N], not {self.y.dtype} {list(self.y.shape)}")
        if len(self.rows) != len(self.y):
            raise ValueError(f"{len(self.rows)} inputs but {len(self.y)} labels")

    def __repr__(self) -> str:
        """Return ``Samples(40 of 3x12x12, 2 classes)``."""
        return f"Samples({len(self)} of {'x'.join(map(str, self.shape))}, {len(self.classes)} classes)"

    @classmethod
    def of(cls, x: Tensor | Source, y: Tensor, *, channels_last: bool = False) -> Samples:
        """Return samples of a whole tensor (uint8 images stay uint8) or of a whole source."""
        source = TensorSource(x, channels_last) if isinstance(x, Tensor) else x
        return cls(source, y, torch.arange(len(source)))

    def __len__(self) -> int:
        return len(self.y)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one input as it is stored."""
        return self.source.shape

    @property
    def x(self) -> Tensor:
        """Return all inputs at once: for small sets only."""
        return self.source.take(self.rows)

    @cached_property
    def classes(self) -> tuple[int, ...]:
        """Return the labels that occur, ascending; computed once."""
        return tuple(torch.unique(self.y).tolist())

    def gather(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and labels at ``indices`` (each in 0..len-1), in that order."""
        return self.source.take(self.rows.index_select(0, indices)), self.y.index_select(0, indices)

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and labels in order, ``size`` at a time; without samples one empty batch."""
        for start in range(0, max(1, len(self)), size):
            rows = slice(start, start + size)
            yield self.source.take(self.rows[rows]), self.y[rows]

    def subset(self, indices: Tensor) -> Samples:
        """Return the samples at ``indices``, without copying an input."""
        return Samples(self.source, self.y[indices], self.rows[indices])

    def map(self, function: Callable[[Tensor], Tensor]) -> Samples:
        """Return the same samples, with inputs passed through ``function`` when they are read."""
        return Samples(MappedSource(self.source, function), self.y, self.rows)


def concat(parts: Sequence[Samples]) -> Samples:
    """Return all samples of all parts, in order."""
    if not parts:
        raise ValueError("nothing to concatenate")
    if len({part.shape for part in parts}) > 1:
        raise ValueError(f"inputs differ in shape: {sorted({part.shape for part in parts})}")
    y = torch.cat([part.y for part in parts])
    sources = list({id(part.source): part.source for part in parts}.values())
    if len(sources) == 1:
        return Samples(sources[0], y, torch.cat([part.rows for part in parts]))
    starts: dict[int, int] = {}
    total = 0
    for source in sources:
        starts[id(source)] = total
        total += len(source)
    rows = torch.cat([part.rows + starts[id(part.source)] for part in parts])
    return Samples(JoinedSource(tuple(sources)), y, rows)


def select_classes(samples: Samples, classes: Sequence[int], per_class: int | None = None) -> Samples:
    """Return the samples of these classes in order, at most ``per_class`` of each.

    Those that are left are evenly spaced.
    """
    if per_class is None:
        return samples.subset(torch.isin(samples.y, torch.tensor(classes)).nonzero().squeeze(1))
    rows = [(samples.y == label).nonzero().squeeze(1) for label in classes]
    chosen = [mine[torch.tensor(pick_evenly(len(mine), per_class), dtype=torch.int64)] for mine in rows]
    return samples.subset(torch.cat(chosen).sort().values)


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


_END = object()


def prefetch(items: Iterable[T], depth: int = 2) -> Generator[T, None, None]:
    """Yield the same items in the same order, up to ``depth`` of them made ahead by a thread.

    With ``depth`` 0 nothing is made ahead. The items must draw from generators that nothing else
    uses, and an item that a run may resume from carries their state after it was made, because the
    generators are ahead of the consumer.
    """
    if depth == 0:
        yield from items
        return
    ready: queue.Queue[object] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: object) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(item):
                    return
            put(_END)
        except BaseException as error:  # raised in the consumer
            put(_Failure(error))

    worker = threading.Thread(target=work, name="tmln-prefetch", daemon=True)
    worker.start()
    try:
        while (item := ready.get()) is not _END:
            if isinstance(item, _Failure):
                raise item.error
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        worker.join()
