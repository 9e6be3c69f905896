"""The model as a learner scores it: classes that were not met yet are closed, in every pass alike."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mask_logits(output: Tensor, open_classes: Sequence[int] | None) -> Tensor:
    """The output with every class but these closed (-inf); None leaves all open."""
    return output if open_classes is None else _close(output, _closed(open_classes))


class Scored(nn.Module):
    """``model`` whose closed classes have the logit -inf: no probability, no gradient, no share in any metric.

    Training, the Fisher diagonal, K-FAC, output sensitivities, reference gradients and teachers all go through it, so
    that a class that was not met does not exist for any of them, as if the head grew.
    """

    closed: Tensor

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("closed", _closed(()), persistent=False)
        self.train(model.training)

    def open(self, classes: Sequence[int]) -> None:
        """From now on these compete, and no others."""
        self.closed = _closed(classes)

    def forward(self, x: Tensor) -> Tensor:
        return _close(self.model(x), self.closed)


def _closed(open_classes: Sequence[int]) -> Tensor:
    """For each class up to the last open one: is it closed?"""
    closed = torch.ones(max(open_classes, default=-1) + 1, dtype=torch.bool)
    closed[list(open_classes)] = False
    return closed


def _close(output: Tensor, closed: Tensor) -> Tensor:
    every = F.pad(closed, (0, output.shape[1] - len(closed)), value=True)
    return output.masked_fill(every.to(output.device), float("-inf"))
