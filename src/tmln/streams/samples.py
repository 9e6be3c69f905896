"""Inputs and labels read by index: in memory, memory-mapped, or made on the fly, behind one small type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from tmln.data.image_files import pick_evenly


class Source(Protocol):
    """Where inputs come from: N of them, each of ``shape``, any batch of them at once."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample, channels first."""

    def __len__(self) -> int: ...

    def take(self, rows: Tensor) -> Tensor:
        """A batch, in the order of ``rows``."""


@dataclass(frozen=True, eq=False)
class Rows:
    """A tensor [N, ...], in memory or over a memory-mapped file.

    With ``channels_last`` the tensor is [N, H, W, C] and batches come out as [B, C, H, W] in channels_last
    layout: one copy of whole images, where a permuted tensor would be read pixel by pixel.
    """

    tensor: Tensor
    channels_last: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels first, also of images that are kept with channels last."""
        shape = tuple(self.tensor.shape[1:])
        return (shape[-1], *shape[:-1]) if self.channels_last else shape

    def __len__(self) -> int:
        return len(self.tensor)

    def take(self, rows: Tensor) -> Tensor:
        """A copy, [B, C, H, W] also of images that are kept as [N, H, W, C]."""
        batch = self.tensor.index_select(0, rows)
        return batch.permute(0, 3, 1, 2) if self.channels_last else batch


@dataclass(frozen=True, eq=False)
class Mapped:
    """Another source seen through a deterministic function of a batch that keeps each input's shape."""

    source: Source
    function: Callable[[Tensor], Tensor]

    @property
    def shape(self) -> tuple[int, ...]:
        """The source's: the function keeps shapes."""
        return self.source.shape

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: Tensor) -> Tensor:
        """The function of the batch, each time anew."""
        return self.function(self.source.take(rows))


@dataclass(frozen=True, eq=False)
class Joined:
    """Several sources one after another; all give inputs of one shape and type."""

    sources: tuple[Source, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the first, which all share."""
        return self.sources[0].shape

    def __len__(self) -> int:
        return sum(map(len, self.sources))

    def take(self, rows: Tensor) -> Tensor:
        """From each source its rows, put back where they were asked for."""
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
        # Sorting the places puts every part's rows back where they were asked for.
        order = torch.cat(places).argsort()
        layout = torch.channels_last if _is_channels_last(parts[0]) else torch.contiguous_format
        return torch.cat(parts).index_select(0, order).contiguous(memory_format=layout)


def _is_channels_last(x: Tensor) -> bool:
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


@dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """``rows`` of a source with their labels ``y``; ``gather`` reads a batch of them at once."""

    source: Source
    y: Tensor
    rows: Tensor

    def __post_init__(self) -> None:
        if self.y.dtype != torch.int64 or self.y.dim() != 1:
            raise TypeError(f"labels are int64 [N], not {self.y.dtype} {list(self.y.shape)}")
        if len(self.rows) != len(self.y):
            raise ValueError(f"{len(self.rows)} inputs but {len(self.y)} labels")

    def __repr__(self) -> str:
        """``Samples(40 of 3x12x12, 2 classes)``: what it is, not what it holds."""
        return f"Samples({len(self)} of {'x'.join(map(str, self.shape))}, {len(self.classes)} classes)"

    @classmethod
    def of(cls, x: Tensor | Source, y: Tensor, *, channels_last: bool = False) -> Samples:
        """Samples of a whole tensor (uint8 images stay uint8) or of a whole source."""
        source = Rows(x, channels_last) if isinstance(x, Tensor) else x
        return cls(source, y, torch.arange(len(source)))

    def __len__(self) -> int:
        return len(self.y)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input as it is stored."""
        return self.source.shape

    @property
    def x(self) -> Tensor:
        """All inputs at once: small sets only."""
        return self.source.take(self.rows)

    @cached_property
    def classes(self) -> tuple[int, ...]:
        """The labels that occur, ascending; found once."""
        return tuple(torch.unique(self.y).tolist())

    def gather(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and labels at ``indices`` (each in 0..len-1), in that order."""
        return self.source.take(self.rows.index_select(0, indices)), self.y.index_select(0, indices)

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All inputs and labels in order, ``size`` at a time; of no samples, one batch of none."""
        for start in range(0, max(1, len(self)), size):
            rows = slice(start, start + size)
            yield self.source.take(self.rows[rows]), self.y[rows]

    def subset(self, indices: Tensor) -> Samples:
        """The samples at ``indices``, without copying an input."""
        return Samples(self.source, self.y[indices], self.rows[indices])

    def map(self, function: Callable[[Tensor], Tensor]) -> Samples:
        """The same samples, each batch of inputs passed through ``function`` when it is read."""
        return Samples(Mapped(self.source, function), self.y, self.rows)


def concat(parts: Sequence[Samples]) -> Samples:
    """All samples of all parts, in order: what a joint reference trains on."""
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
    return Samples(Joined(tuple(sources)), y, rows)


def of_classes(samples: Samples, classes: Sequence[int], per_class: int | None = None) -> Samples:
    """The samples of these classes in their order; at most ``per_class`` of each, pick_evenly spaced."""
    if per_class is None:
        return samples.subset(torch.isin(samples.y, torch.tensor(classes)).nonzero().squeeze(1))
    rows = [(samples.y == label).nonzero().squeeze(1) for label in classes]
    chosen = [mine[torch.tensor(pick_evenly(len(mine), per_class), dtype=torch.int64)] for mine in rows]
    return samples.subset(torch.cat(chosen).sort().values)
