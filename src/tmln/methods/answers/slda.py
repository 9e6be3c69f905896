"""Streaming linear discriminant analysis (Hayes & Kanan 2020): exact batch LDA in any order.

The second moment of all features is kept raw, and the covariance within classes formed from it:
S = (sum f f^T - sum_c n_c mu_c mu_c^T) / N.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Guide, MemoryConditions, MemoryTerm
from tmln.methods.answers.closed_form import ClosedFormAnswer, ClosedFormSettings
from tmln.methods.answers.ncm import fit_inverse_temperature
from tmln.methods.answers.sums import add_gram_

GRID = (1e-4, 1e-3, 1e-2, 1e-1)  # of the shrinkage
USUAL = 0.1  # without samples to choose by: the best on CIFAR-100 and CUB-200 with EfficientNet-Lite0


class SLDASettings(ClosedFormSettings):
    """Settings of ``slda``."""

    shrinkage: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share e of the identity in the covariance; unless given, that of 1e-4 .. 0.1 with the best"
        " likelihood of kept samples, each left out of the head",
        json_schema_extra={"search": [None, *GRID, 0.3]},
    )


class LinearHead(NamedTuple):
    """Scores are ``features @ weight + bias``."""

    weight: Tensor  # [d, classes]
    bias: Tensor


def covariance(counts: Tensor, sums: Tensor, moment: Tensor) -> tuple[Tensor, Tensor]:
    """Return class means [classes, d] and the covariance within classes [d, d], from raw sums."""
    means, total = sums / counts.clamp_min(1).unsqueeze(1), float(counts.sum())
    return means, torch.addmm(moment, sums.T, means, beta=1 / total, alpha=-1 / total)


def shrink(matrix: Tensor, shrinkage: float) -> Tensor:
    """Return (1 - e) S + e I."""
    mixed = (1 - shrinkage) * matrix
    mixed.diagonal().add_(shrinkage)
    return mixed


def discriminants(means: Tensor, within: Tensor, shrinkage: float) -> LinearHead:
    """Return w_c = L mu_c and b_c = -mu_c^T L mu_c / 2, L the inverse of the shrunk covariance.

    >>> means, within = torch.tensor([[1.0, 0.0], [1.0, 3.0]]), torch.diag(torch.tensor([1.0, 0.0]))
    >>> head = discriminants(means, within, 0.5)
    >>> head.weight.T, head.bias
    (tensor([[1.0000, 0.0000],
            [1.0000, 6.0000]]), tensor([-0.5000, -9.5000]))
    """
    weight = torch.cholesky_solve(means.T, torch.linalg.cholesky(shrink(within, shrinkage)))
    return LinearHead(weight, -0.5 * (means.T * weight).sum(0))


def scores_left_out(features: Tensor, y: Tensor, counts: Tensor, means: Tensor, within: Tensor, e: float) -> Tensor:
    """Return -d^2/2 to all class means, of the head without each sample, up to a constant a row.

    Without a sample f of class c, with delta = f - mu_c, the covariance is
    (N S - n_c/(n_c-1) delta delta^T) / (N-1): a change of rank one, by Sherman and Morrison.
    Classes of the samples have two samples or more.
    """
    total, own = float(counts.sum()), counts[y]
    factor = torch.linalg.cholesky(shrink(within * (total / (total - 1)), e))
    z, m = (torch.linalg.solve_triangular(factor, t.T, upper=False).T for t in (features, means))
    delta, rows = z - m[y], torch.arange(len(y))
    square: Tensor = z.square().sum(1, keepdim=True) - 2 * z @ m.T + m.square().sum(1)
    along = (z * delta).sum(1, keepdim=True) - delta @ m.T
    grown = own / (own - 1)  # the sample is as much farther from the mean without it
    square[rows, y] = delta.square().sum(1) * grown.square()
    along[rows, y] = delta.square().sum(1) * grown
    a = (1 - e) * grown / (total - 1)
    change: Tensor = (a / (1 - a * delta.square().sum(1))).unsqueeze(1) * along.square()
    return -0.5 * (square + change)


class StreamingLDA(ClosedFormAnswer):
    """Linear discriminant analysis: class means, and one covariance that all classes share."""

    name = "slda"
    Settings = SLDASettings
    guide = Guide(
        equation=r"w_c = \Lambda \mu_c, \; b_c = -\tfrac12 \mu_c^\top \Lambda \mu_c, \quad"
        r" \Lambda = ((1 - e) S + e I)^{-1}",
        origin="Hayes & Kanan 2020; exact sums in place of running means.",
        cost="A pass over each task's samples; d^2 numbers for d features, and a mean for every class.",
        use="On a pre-trained backbone, with ten pictures of a class or more.",
        avoid="With one or two pictures of a class in all: `stream-ncm`.",
    )
    symmetric_sums: ClassVar[tuple[str, ...]] = ("moment",)

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        """Return the second moment and the linear head besides those of the base."""
        head = [MemoryTerm("head", unit, 2, derived=True) for unit in ("dC", "C")]
        return [*(super().memory_terms(settings, conditions) or []), MemoryTerm("sums", "d^2", 2), *head]

    def add_own_sums(self, total: dict[str, Tensor], features: Tensor, y: Tensor) -> None:
        """Add the second moment."""
        wide, size = features.double(), features.shape[1]
        add_gram_(total.setdefault("moment", wide.new_zeros(size, size)), wide)

    def leave_out(self, label: int) -> None:
        """Take a class from the second moment so that the covariance that is shared stays."""
        counts, features = self.sums["counts"], self.sums["features"]
        met = counts > 0
        scaled = features[met] / counts[met].sqrt()[:, None]
        own = features[label] / counts[label].sqrt()
        within = self.sums["moment"] - scaled.T @ scaled
        super().leave_out(label)
        self.sums["moment"] = self.sums["moment"] - torch.outer(own, own) - within * (counts[label] / counts.sum())

    def solve(self) -> LinearHead:
        """Return the linear head; choose shrinkage and temperature by the kept samples."""
        means, within = covariance(self.sums["counts"], self.sums["features"], self.sums["moment"])
        try:
            self._choose(means, within)
            return discriminants(means, within, self.fitted["shrinkage"])
        except RuntimeError as error:
            raise ValueError(
                f"the covariance of {self.counts.sum():.0f} samples cannot be inverted with answer.shrinkage = "
                f"{self.fitted['shrinkage']:g}: give a larger one"
            ) from error

    def _choose(self, means: Tensor, within: Tensor) -> None:
        """Fill :attr:`fitted`: the shrinkage with the best likelihood, and its temperature.

        The likelihood has one maximum on real features; the search goes down from the largest
        shrinkage until it falls.
        """
        features, y = self.calibration_samples()
        grid = [self.settings.shrinkage] if self.settings.shrinkage else sorted(GRID, reverse=True)
        self.fitted.setdefault("shrinkage", self.settings.shrinkage or USUAL)
        if not len(y) or "inverse_temperature" in self.fitted:
            return
        met, best = self.counts > 0, float("inf")
        column = met.cumsum(0)[y] - 1
        for e in grid:
            try:
                scores = scores_left_out(features.double(), y, self.counts, means, within, e)[:, met]
            except RuntimeError:  # too little of the identity for these samples
                break
            scale = fit_inverse_temperature(scores, column)
            loss = float(F.cross_entropy(scores * scale, column))
            if not loss < best:
                break
            best = loss
            self.fitted |= {"shrinkage": e, "inverse_temperature": scale}

    def raw_scores(self, features: Tensor) -> Tensor:
        """Return the discriminants."""
        found: Tensor = features.double() @ self.solution.weight + self.solution.bias
        return found

    def linear_form(self) -> tuple[list[nn.Module], Tensor, Tensor]:
        """Return the linear head."""
        return [], self.solution.weight, self.solution.bias
