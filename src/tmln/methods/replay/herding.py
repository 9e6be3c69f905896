"""Herding (iCaRL, Rebuffi et al. 2017, algorithms 4 and 5): equally many exemplars per class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tmln.curvature.preserve_state import preserve_model
from tmln.methods import Features, TaskContext
from tmln.methods.replay.fields import infer_kinds
from tmln.methods.replay.reservoir import Reservoir


def select_by_herding(features: Tensor, count: int) -> list[int]:
    """Return rows; the k-th brings the mean of the first k nearest to the mean of all.

    >>> select_by_herding(torch.tensor([[0.0, 4.0], [3.0, 0.0], [0.0, -3.0], [1.0, 1.0]]), 3)
    [3, 1, 0]
    """
    left, total = torch.ones(len(features), dtype=torch.bool, device=features.device), torch.zeros_like(features[0])
    mean, found = features.mean(0), []
    for k in range(1, min(count, len(features)) + 1):
        far = (mean - (total + features) / k).square().sum(1)
        row = int(far.masked_fill(~left, float("inf")).argmin())
        total, left[row] = total + features[row], False
        found.append(row)
    return found


def split_capacity(capacity: int, classes: list[int]) -> dict[int, int]:
    """Return the number of samples of each class; the first ones get the remainder.

    >>> split_capacity(8, [0, 1, 4])
    {0: 3, 1: 3, 4: 2}
    """
    each, more = divmod(capacity, max(1, len(classes)))
    return {label: each + (number < more) for number, label in enumerate(classes)}


class Exemplars(Reservoir):
    """A memory whose samples are replaced at every task's end, class by class.

    >>> memory = Exemplars(capacity=500)
    >>> memory.replace({"x": torch.zeros(2, 3), "y": torch.tensor([0, 1])})
    >>> len(memory)
    2
    """

    def replace(self, rows: Mapping[str, Tensor]) -> None:
        """Replace all samples, by at most ``capacity`` ones."""
        count = len(next(iter(rows.values())))
        if count > self.capacity:
            raise ValueError(f"{count} samples do not fit into a memory of {self.capacity}")
        if not self._storage.kinds:
            self._storage.begin(infer_kinds(rows, self.pad), rows)
        self._storage.write(torch.arange(count), rows)
        self.seen = count


@torch.no_grad()
def herd_task(
    memory: Exemplars, context: TaskContext, features: Features, fields: Callable[[Tensor, Tensor], Mapping[str, Any]]
) -> None:
    """Select exemplars of the task's classes by herding, and keep the first ones of the others.

    A class of the task that was stored before is selected from stored and new samples together.
    ``fields`` returns further fields of new samples.
    """
    before, phi, labels = len(memory), [], []
    with preserve_model(context.model, training=False):
        for source in (context.batches(memory) if before else (), context.batches()):
            for x, y in source:
                phi.append(F.normalize(features.extract(context.model, x)[1].float()))
                labels.append(y.cpu())
    every, y = torch.cat(phi), torch.cat(labels)
    now = set(y[before:].tolist())
    kept: list[int] = []
    for label, count in split_capacity(memory.capacity, y.unique().tolist()).items():
        rows = torch.nonzero(y == label).flatten()
        kept += rows[select_by_herding(every[rows], count)].tolist() if label in now else rows[:count].tolist()
    memory.replace(_gather_rows(memory, context, torch.tensor(kept), before, fields))


def _gather_rows(
    memory: Exemplars,
    context: TaskContext,
    kept: Tensor,
    before: int,
    fields: Callable[[Tensor, Tensor], Mapping[str, Any]],
) -> dict[str, Tensor]:
    """Return these samples in this order, numbered through the memory and then the task."""
    parts, places = [], []
    old = torch.nonzero(kept < before).flatten()
    if len(old):
        parts.append(memory._read(kept[old]))
        places.append(old)
    start = before
    for x, y in context.samples():
        new = torch.nonzero((kept >= start) & (kept < start + len(y))).flatten()
        if len(new):
            rows = kept[new] - start
            picked_x, picked_y = x[rows.to(x.device)], y[rows.to(y.device)]
            parts.append({"x": picked_x, "y": picked_y, **fields(picked_x, picked_y)})
            places.append(new)
        start += len(y)
    order = torch.cat(places).argsort()
    return {name: torch.cat([part[name] for part in parts])[order] for name in parts[0]}
