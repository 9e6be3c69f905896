"""Statistics of an evaluation pass: confusion, calibration, dormant units, effective rank.

Dormant units: Sokar et al. 2023, "The dormant neuron phenomenon". Effective rank: Roy and Vetterli
2007.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tmln.curvature.preserve_state import is_measuring
from tmln.distributed.process_group import Ranks
from tmln.evaluation_counts import BINS

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
TAU = 0.025  # a unit whose mean activity is at most this share of its layer's is dormant


def dormant_share(activities: list[Tensor], tau: float = TAU) -> float:
    """Return the share of units i with E|h_i| <= tau * mean_k E|h_k|, within each layer.

    >>> dormant_share([torch.tensor([1.0, 1.0, 0.0, 2.0]), torch.zeros(4)])
    0.625
    """
    dormant = sum(int((activity <= tau * activity.mean()).sum()) for activity in activities)
    return dormant / sum(len(activity) for activity in activities)


def effective_rank(gram: Tensor) -> float:
    """Return exp(-sum_i p_i ln p_i), p_i the singular values over their sum, of Phi^T Phi.

    >>> round(effective_rank(torch.diag(torch.tensor([4.0, 4.0, 0.0]))), 6)
    2.0
    """
    values = torch.linalg.eigvalsh(gram.double()).clamp(min=0).sqrt()
    if not values.sum() > 0:  # no features at all, or none that are numbers
        return float("nan")
    share = values / values.sum()
    return float(torch.exp(torch.special.entr(share).sum()))


class Tally:
    """Counts over one test of all tasks: ``tally(task, outputs, labels)`` for each batch.

    ``confusion`` and ``predicted`` are of all tasks, the bins of confidence of the first ``seen``
    ones.
    """

    def __init__(self, seen: int) -> None:
        self.seen = seen
        self.confusion = torch.zeros(0, 0, dtype=torch.int64)
        self.bins = torch.zeros(3, BINS, dtype=torch.float64)  # samples, right ones, sum of confidences
        self.predicted: list[Tensor] = []

    def __call__(self, task: int, outputs: Tensor, labels: Tensor) -> None:
        classes = outputs.shape[1]
        confidence = outputs.softmax(1).amax(1).double().cpu()
        answer = outputs.argmax(1).cpu()  # ties as accuracy breaks them
        true = labels.cpu()
        counts = torch.bincount(true * classes + answer, minlength=classes**2).reshape(classes, classes)
        self.confusion = counts if not len(self.confusion) else self.confusion + counts
        self.predicted.append(answer)
        if task < self.seen:
            place = (confidence.nan_to_num(0.0) * BINS).ceil().long().sub(1).clamp(0, BINS - 1)
            for row, weight in enumerate((torch.ones_like(confidence), (answer == true).double(), confidence)):
                self.bins[row].index_add_(0, place, weight)


class Liveliness:
    """Observes the inputs of all linear and convolutional layers but the first, by unit.

    A layer's input is what the activation before it let through, whether that is a module or a
    function. The last layer's input are the features. An input that two layers share counts once.
    """

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.gram: Tensor | None = None
        self._given: list[weakref.ref[Tensor]] = []  # to the layers of this pass so far; weak, so that they are freed
        self._features: Tensor | None = None  # what the latest layer of this pass was given

    @contextmanager
    def watch(self, model: nn.Module) -> Iterator[None]:
        """Count every pass through the model within the block, except measurements."""
        handles = [
            module.register_forward_pre_hook(self._hook(name))
            for name, module in model.named_modules()
            if isinstance(module, LAYERS)
        ]
        handles.append(model.register_forward_hook(self._end))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, name: str) -> Any:
        def look(module: nn.Module, given: tuple[Any, ...]) -> None:
            x = given[0] if given and isinstance(given[0], Tensor) else None
            if x is None or x.dim() < 2 or not x.is_floating_point() or is_measuring():
                return
            known = any(before() is x for before in self._given)
            first = not self._given
            self._given.append(weakref.ref(x))
            if not known and not first:
                self._count(name, x.detach(), -1 if isinstance(module, nn.Linear) else 1)

        return look

    def _count(self, name: str, x: Tensor, units: int) -> None:
        axes = [axis for axis in range(1, x.dim()) if axis != units % x.dim()]
        # sample by sample first: both at once take four times as long in channels_last
        each = torch.linalg.vector_norm(x, 1, dim=axes) if axes else x.abs()
        found = each.double().sum(0).cpu()
        if name in self.sums and len(self.sums[name]) == len(found):
            self.sums[name] += found
        else:
            self.sums[name], self.counts[name] = found, 0
        self.counts[name] += x.numel() // len(found)
        self._features = x

    def _end(self, model: nn.Module, given: Any, output: Any) -> None:
        features, self._features = self._features, None
        self._given.clear()
        if features is not None and features.dim() == 2:
            features = features.double()  # rounding of single precision would be taken for further directions
            gram = (features.T @ features).cpu()
            self.gram = gram if self.gram is None or self.gram.shape != gram.shape else self.gram + gram

    def of_all(self, ranks: Ranks) -> None:
        """Add up what was counted on each rank."""
        counts = torch.tensor([float(count) for count in self.counts.values()], dtype=torch.float64)
        ranks.sum_tensors_([*self.sums.values(), counts, *([] if self.gram is None else [self.gram])])
        self.counts = {name: int(count) for name, count in zip(self.counts, counts.tolist(), strict=True)}

    @property
    def dormant(self) -> float | None:
        """The share of dormant units; None where no unit was seen."""
        means = [self.sums[name] / self.counts[name] for name in self.sums]
        return dormant_share(means) if means else None

    @property
    def rank(self) -> float | None:
        """The effective rank of the features; None where the last layer has no rows of them."""
        return None if self.gram is None else effective_rank(self.gram)
