"""Nearest class mean of the memory's features (iCaRL: Rebuffi et al. 2017, algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.methods import BuildContext, Guide
from tmln.methods.answers.memory import LayerSettings, MemoryAnswer
from tmln.methods.features import replace_layer
from tmln.optim.state import state_dtype

MAX_DISTANCE = 4.0  # squared, of two vectors of length 1
MAX_FIT_SAMPLES = 2000  # for the temperature


def compute_class_means(features: Tensor, y: Tensor) -> tuple[Tensor, list[int]]:
    """Return the mean feature of every class, and the classes; features and means have length 1.

    >>> features = torch.tensor([[3.0, 0.0], [0.0, 2.0], [0.0, 5.0]])
    >>> compute_class_means(features, torch.tensor([1, 1, 4]))
    (tensor([[0.7071, 0.7071],
            [0.0000, 1.0000]]), [1, 4])
    """
    features = F.normalize(features.to(state_dtype(features)))
    classes: list[int] = y.cpu().unique().tolist()
    return torch.stack([F.normalize(features[y == label].mean(0), dim=0) for label in classes]), classes


def score_by_distance(output: Tensor, features: Tensor, means: Tensor, classes: list[int]) -> Tensor:
    """Return -||phi - mu_y||^2 for classes with a mean, phi of length 1.

    Classes without one rank behind them, in the order of their outputs.
    """
    features = F.normalize(features.to(means.dtype))
    logits = output.to(means.dtype)
    scores = logits - logits.max(1, keepdim=True).values - MAX_DISTANCE - 1
    scores[:, classes] = -torch.cdist(features, means, compute_mode="donot_use_mm_for_euclid_dist").square()
    return scores


def score_left_out(features: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return -||phi - mu_c||^2 to every class mean, the own mean without the sample, and columns.

    Samples that are alone in their class are left out; of more than ``MAX_FIT_SAMPLES``, evenly
    spaced ones are taken.
    """
    features, y = F.normalize(features.cpu().double()), y.cpu()
    classes, column, counts = y.unique(return_inverse=True, return_counts=True)
    sums = features.new_zeros(len(classes), features.shape[1]).index_add_(0, column, features)
    rows = torch.nonzero(counts[column] > 1).squeeze(1)
    if len(rows) > MAX_FIT_SAMPLES:
        rows = rows[torch.linspace(0, len(rows) - 1, MAX_FIT_SAMPLES).long()]
    phi, own = features[rows], column[rows]
    scores = -torch.cdist(phi, F.normalize(sums), compute_mode="donot_use_mm_for_euclid_dist").square()
    scores[torch.arange(len(rows)), own] = -(phi - F.normalize(sums[own] - phi)).square().sum(1)
    return scores, own


def fit_inverse_temperature(scores: Tensor, column: Tensor) -> float:
    """Return the b that minimises the cross entropy of softmax(b * scores); 1 for a single class.

    The target of the true class is (n+1)/(n+2), as Platt (1999) has it, so that b is finite where
    all n are right.
    """
    n, classes = scores.shape
    if n == 0 or classes == 1:
        return 1.0
    target = torch.full_like(scores, 1 / ((n + 2) * (classes - 1)))
    target[torch.arange(n), column] = (n + 1) / (n + 2)
    wanted = (target * scores).sum(1)
    low, high = 2.0**-10, 2.0**20  # the loss is convex in b
    b = 2.0**5
    for _ in range(60):
        share = (scores * b).softmax(1)
        mean = (share * scores).sum(1, keepdim=True)
        slope = float((mean.squeeze(1) - wanted).sum())
        curvature = float((share * (scores - mean).square()).sum())
        low, high = (b, high) if slope < 0 else (low, b)
        newton = b - slope / curvature if curvature > 0 else math.inf
        if abs(newton - b) <= 1e-9 * b:  # it converges quadratically
            return newton
        b = newton if low < newton < high else math.sqrt(low * high)
    return b


class MeanHead(nn.Module):
    """The scores of :func:`score_by_distance` in place of a last layer, for exports."""

    means: Tensor
    has_mean: Tensor

    def __init__(self, layer: nn.Module, means: Tensor, classes: list[int], inverse_temperature: float) -> None:
        super().__init__()
        self.layer, self.inverse_temperature = layer, inverse_temperature
        outputs = max(int(getattr(layer, "out_features", 0)), max(classes) + 1)
        every = means.new_zeros(outputs, means.shape[1])
        every[classes] = means
        self.register_buffer("means", every)
        self.register_buffer("has_mean", torch.isin(torch.arange(outputs), torch.tensor(classes)).to(means.device))

    def forward(self, x: Tensor) -> Tensor:
        logits = self.layer(x)
        distance = 2.0 - 2.0 * F.normalize(x.flatten(1)) @ self.means.T.to(x.dtype)
        others = logits - logits.amax(1, keepdim=True) - MAX_DISTANCE - 1
        return torch.where(self.has_mean, -distance, others) * self.inverse_temperature


class NearestMean(MemoryAnswer[LayerSettings]):
    """The class whose mean feature in the memory, at the task's end, is nearest.

    Features have length 1.

    Scores are -distance^2 times an inverse temperature, fitted to the memory with each sample left
    out of its mean, so that their softmax is a probability. They are in double precision: the order
    of the distances is kept to the bit.
    """

    name = "ncm"
    supports_fsdp = True
    Settings = LayerSettings
    state_names: ClassVar[tuple[str, ...]] = ("means", "classes", "inverse_temperature")
    guide = Guide(
        equation=r"\hat y = \arg\min_c \left\| \frac{\varphi(x)}{\| \varphi(x) \|} - \mu_c \right\|",
        origin="iCaRL: Rebuffi et al. 2017, algorithm 1.",
        cost="A pass over the memory at each task's end, and a mean for every class.",
        use="With a memory that has samples of every class, where features are better than the last layer"
        " on top of them.",
        avoid="Without a memory, and where a class is not one cluster.",
    )

    def __init__(self, settings: LayerSettings, context: BuildContext) -> None:
        super().__init__(settings, context)
        self.means: Tensor | None = None
        self.classes: list[int] = []
        self.inverse_temperature = 1.0

    @property
    def is_fitted(self) -> bool:
        return self.means is not None

    def reset(self) -> None:
        self.means, self.classes, self.inverse_temperature = None, [], 1.0

    def fit(self, features: Tensor, output: Tensor, y: Tensor, layer: nn.Module) -> None:
        self.means, self.classes = compute_class_means(features, y)
        self.inverse_temperature = fit_inverse_temperature(*score_left_out(features, y))

    def score(self, output: Tensor, features: Tensor) -> Tensor:
        assert self.means is not None
        return score_by_distance(output, features, self.means, self.classes).double() * self.inverse_temperature

    def in_model(self, model: nn.Module, x: Tensor) -> AbstractContextManager[None]:
        """Replace the model's last layer by distances to the means, whose output is the scores."""
        if self.means is None:
            return nullcontext()
        layer = self.features.get_layer(model, x)
        head = MeanHead(layer, self.means, self.classes, self.inverse_temperature)
        return replace_layer(model, layer, head.to(x.device).eval())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict({"inverse_temperature": 1.0, **state})  # states of version 0.2 have none
