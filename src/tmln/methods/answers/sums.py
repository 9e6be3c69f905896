"""Sums over features that heads in closed form are functions of, added in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 512  # rows of a symmetric sum that are added at a time


class FeatureBatch(NamedTuple):
    """Features of some samples of a task."""

    features: Tensor  # [n, d]
    y: Tensor  # labels by their places
    classes: int  # places so far
    order: Tensor  # how many samples of its class came before each in the task


class Places:
    """Numbers labels from 0 on in the order in which they come, so that sums have few rows.

    >>> places = Places()
    >>> places.of(torch.tensor([907, 3, 907])), places.labels
    (tensor([1, 0, 1]), [3, 907])
    >>> places.count(torch.tensor([1, 0, 1])), places.count(torch.tensor([1]))
    (tensor([0, 0, 1]), tensor([2]))
    """

    def __init__(self) -> None:
        self.labels: list[int] = []
        self.counts = torch.zeros(0, dtype=torch.int64)

    def of(self, y: Tensor) -> Tensor:
        """Return the place of each label; new ones come next, in ascending order."""
        self.labels += sorted({*y.tolist()} - {*self.labels})
        table = torch.zeros(max(self.labels, default=-1) + 1, dtype=torch.int64)
        table[self.labels] = torch.arange(len(self.labels))
        return table[y]

    def count(self, places: Tensor) -> Tensor:
        """Return how many samples of its class came before each, and count these."""
        self.counts = grow_dim(self.counts, 0, len(self.labels))
        grouped, order = places.sort(stable=True)
        found = torch.empty_like(places)
        found[order] = torch.arange(len(places)) - torch.searchsorted(grouped, grouped) + self.counts[grouped]
        self.counts += torch.bincount(places, minlength=len(self.labels))
        return found


def sum_by_class(features: Tensor, y: Tensor, classes: int) -> Tensor:
    """Return the sum of the features of each class, [classes, d].

    >>> sum_by_class(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 1]), 2)
    tensor([[0., 0.],
            [4., 6.]])
    """
    return features.new_zeros(classes, features.shape[1]).index_add_(0, y, features)


def batch_rows(places: Places, features: Tensor, y: Tensor, rows: slice) -> FeatureBatch:
    """Return the batch of ``rows`` of the labels ``y``, of which ``features`` are."""
    place = places.of(y)
    return FeatureBatch(features, place[rows], len(places.labels), places.count(place)[rows])


def add_gram_(total: Tensor, rows: Tensor) -> Tensor:
    """Add rows^T rows to ``total`` in place, in blocks of rows up to the diagonal.

    What is above the diagonal's blocks is left alone: :func:`mirror_lower_` makes it symmetric.

    >>> add_gram_(torch.zeros(2, 2), torch.tensor([[1.0, 2.0]]))
    tensor([[1., 2.],
            [2., 4.]])
    """
    for begin in range(0, len(total), BLOCK):
        end = min(begin + BLOCK, len(total))
        total[begin:end, :end].addmm_(rows[:, begin:end].T, rows[:, :end])
    return total


def mirror_lower_(matrix: Tensor) -> Tensor:
    """Copy what is below the diagonal above it, in place.

    >>> mirror_lower_(torch.tensor([[1.0, 9.0], [2.0, 3.0]]))
    tensor([[1., 2.],
            [2., 3.]])
    """
    for begin in range(0, len(matrix), BLOCK):
        end = min(begin + BLOCK, len(matrix))
        matrix[:begin, begin:end] = matrix[begin:end, :begin].T
        block = matrix[begin:end, begin:end].tril()
        matrix[begin:end, begin:end] = block + block.tril(-1).T
    return matrix


def grow_dim(value: Tensor, dim: int, size: int) -> Tensor:
    """Return the tensor with zeros appended along ``dim``; itself if it has ``size`` or more."""
    if value.shape[dim] >= size:
        return value
    shape = list(value.shape)
    shape[dim] = size - shape[dim]
    return torch.cat([value, value.new_zeros(shape)], dim)


def keep_first(kept: Tensor, kept_y: Tensor, features: Tensor, y: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return the first ``most`` samples of each class, of those kept and then of these, float32.

    >>> features, y = torch.arange(4.0).view(4, 1), torch.tensor([2, 2, 0, 2])
    >>> keep_first(torch.zeros(0, 0), torch.zeros(0, dtype=torch.int64), features, y, 2)
    (tensor([[2.],
            [0.],
            [1.]]), tensor([0, 2, 2]))
    """
    old, labels = len(kept_y), torch.cat([kept_y, y])
    grouped, order = labels.sort(stable=True)
    place = torch.arange(len(labels)) - torch.searchsorted(grouped, grouped)
    chosen = order[place < most]  # by label, then by age
    new = chosen[chosen >= old] - old
    stays = chosen[chosen < old].sort().values
    if not old:
        return features[new].float(), y[new]
    return torch.cat([kept[stays], features[new].float()]), torch.cat([kept_y[stays], y[new]])


def join_batches(batches: Iterable[FeatureBatch], rows: int) -> Iterator[FeatureBatch]:
    """Yield batches joined to at least so many rows each; the last one may have fewer."""
    waiting: list[FeatureBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(len(one.y) for one in waiting) >= rows:
            yield join(waiting)
            waiting = []
    if waiting:
        yield join(waiting)


def join(batches: Sequence[FeatureBatch]) -> FeatureBatch:
    """Return batches as one."""
    features, y, order = (torch.cat([getattr(one, name) for one in batches]) for name in ("features", "y", "order"))
    return FeatureBatch(features, y, max(one.classes for one in batches), order)
