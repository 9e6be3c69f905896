"""The nearest class mean of the memory's features (iCaRL: Rebuffi et al. 2017, algorithm 1)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.answers.memory import LayerSettings, MemoryAnswer
from tmln.optim.precision import state_dtype
from tmln.parts import Given, Guide

FARTHEST = 4.0  # the square of the largest distance of two vectors of length 1


def class_means(features: Tensor, y: Tensor) -> tuple[Tensor, list[int]]:
    """The classes in ``y``, and of each the mean of its features, all scaled to length 1, means too.

    >>> class_means(torch.tensor([[3.0, 0.0], [0.0, 2.0], [0.0, 5.0]]), torch.tensor([1, 1, 4]))
    (tensor([[0.7071, 0.7071],
            [0.0000, 1.0000]]), [1, 4])
    """
    features = F.normalize(features.to(state_dtype(features)))
    classes: list[int] = y.cpu().unique().tolist()
    return torch.stack([F.normalize(features[y == label].mean(0), dim=0) for label in classes]), classes


def nearness(output: Tensor, features: Tensor, means: Tensor, classes: list[int]) -> Tensor:
    """-||phi - mu_y||^2 of the classes that have a mean, phi of length 1.

    Those without one come after all of them, in the order of their outputs: among the classes of a task that was not
    learned, where none has a mean, the output answers.
    """
    features = F.normalize(features.to(means.dtype))
    said = output.to(means.dtype)
    scores = said - said.max(1, keepdim=True).values - FARTHEST - 1
    scores[:, classes] = -torch.cdist(features, means, compute_mode="donot_use_mm_for_euclid_dist").square()
    return scores


class NearestMean(MemoryAnswer[LayerSettings]):
    """The class whose mean feature in the memory, at the task's end, is nearest; features have length 1."""

    name = "ncm"
    shards = True
    Settings = LayerSettings
    saved: ClassVar[tuple[str, ...]] = ("means", "classes")
    guide = Guide(
        equation=r"\hat y = \arg\min_c \left\| \frac{\varphi(x)}{\| \varphi(x) \|} - \mu_c \right\|",
        origin="iCaRL: Rebuffi et al. 2017, algorithm 1.",
        cost="A pass over the memory at each task's end, and a mean for every class.",
        use="With a memory that has samples of every class, where features are better than the last layer"
        " on top of them.",
        avoid="Without a memory, and where a class is not one cluster.",
    )

    def __init__(self, settings: LayerSettings, given: Given) -> None:
        super().__init__(settings, given)
        self.means: Tensor | None = None
        self.classes: list[int] = []

    @property
    def fitted(self) -> bool:
        return self.means is not None

    def forget(self) -> None:
        self.means, self.classes = None, []

    def fit(self, features: Tensor, output: Tensor, y: Tensor, layer: nn.Module) -> None:
        self.means, self.classes = class_means(features, y)

    def better(self, output: Tensor, features: Tensor) -> Tensor:
        assert self.means is not None
        return nearness(output, features, self.means, self.classes)
