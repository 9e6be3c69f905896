"""Nearest class mean over all samples of the stream, without a memory (SimpleCIL, 2024)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.methods import Guide
from tmln.methods.answers.closed_form import ClosedFormAnswer


def cosines(features: Tensor, means: Tensor) -> Tensor:
    """Return the cosine of each sample with each class mean, [n, classes].

    >>> cosines(torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0, 0.0], [0.0, 5.0]]))
    tensor([[0.6000, 0.8000]])
    """
    return F.normalize(features) @ F.normalize(means).T


def cosines_left_out(features: Tensor, y: Tensor, sums: Tensor) -> Tensor:
    """Return :func:`cosines` of samples with ``sums``, each left out of its own class's sum."""
    found, rows = cosines(features, sums), torch.arange(len(y))
    found[rows, y] = (F.normalize(features) * F.normalize(sums[y] - features)).sum(1)
    return found


class UnitLength(nn.Module):
    """Vectors divided by their length."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x)


class StreamMean(ClosedFormAnswer):
    """The class whose mean feature, over all samples of the stream, has the largest cosine."""

    name = "stream-ncm"
    guide = Guide(
        equation=r"\hat y = \arg\max_c \cos(\varphi(x), \mu_c), \quad"
        r" \mu_c = \frac{1}{n_c} \sum_{y_i = c} \varphi(x_i)",
        origin="SimpleCIL: Zhou et al. 2024; Rebuffi et al. 2017 for the mean of a memory.",
        cost="A pass over each task's samples, and a mean for every class.",
        use="On a pre-trained backbone, with few pictures of a class: one picture is enough.",
        avoid="With many pictures of a class: `slda` and `ranpac` use how features vary, too.",
    )

    def solve(self) -> Any:
        """Return the sums of features, in the direction of the means; fit the temperature."""
        sums = self.sums["features"]
        if "inverse_temperature" not in self.fitted:
            features, y = self.calibration_samples()
            if len(y):
                self.fitted["inverse_temperature"] = self.fit_temperature(
                    cosines_left_out(features.double(), y, sums), y
                )
        return sums

    def raw_scores(self, features: Tensor) -> Tensor:
        """Return cosines with the class means."""
        return cosines(features.double(), self.solution)

    def linear_form(self) -> tuple[list[nn.Module], Tensor, Tensor]:
        """Return a normalisation and the class means at length 1."""
        means = F.normalize(self.solution)
        return [UnitLength()], means.T, means.new_zeros(len(means))
