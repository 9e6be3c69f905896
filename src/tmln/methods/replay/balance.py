"""Logit adjustment (Menon et al. 2021): the replay loss takes logits + balance*log(prior).

Half of a batch is of the newest classes, and all older classes share the other half. With the
class frequencies in the loss, the weights need not learn them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def compute_prior(
    task: Sequence[int], shares: Mapping[int, float], current: int, replayed: int, outputs: int
) -> Tensor:
    """Return n/(n+m) uniform over the task's classes + m/(n+m) the memory's label shares.

    >>> compute_prior((2, 3), {0: 0.6, 1: 0.4}, 8, 8, 5)
    tensor([0.3000, 0.2000, 0.2500, 0.2500, 0.0000])
    """
    prior = [0.0] * outputs
    for label in task:
        prior[label] += current / (current + replayed) / len(task)
    for label, share in shares.items():
        prior[label] += replayed / (current + replayed) * share
    return torch.tensor(prior)


def format_balanced_rule(equation: str) -> str:
    r"""Return a loss in LaTeX with f + b*log(prior) in the cross entropies of labels.

    >>> format_balanced_rule(r"\mathrm{CE}(f(x), y) + \mathrm{MSE}(f(x'), z')")
    "\\mathrm{CE}(f(x) + b \\log \\text{prior}, y) + \\mathrm{MSE}(f(x'), z')"
    """
    return re.sub(r"(f\([^)]*\)), y", r"\1 + b \\log \\text{prior}, y", equation)


def adjust_logits(output: Tensor, y: Tensor, prior: Tensor, strength: float) -> Tensor:
    """Return ``output + strength*log(prior)``; classes without a prior become -inf.

    A class in the batch without a prior (at a blurry boundary) counts as one sample of the batch.
    """
    prior = prior.to(output.device)
    met = torch.zeros_like(prior, dtype=torch.bool)
    met[y] = True
    prior = torch.where(met & (prior == 0), 1 / len(y), prior)
    return output + strength * prior.log().to(output.dtype)


class Frequencies:
    """The classes of the task and the label shares of the memory, set when the task begins."""

    def __init__(self) -> None:
        self.task: list[int] = []
        self.shares: dict[int, float] = {}  # empty: there was nothing to replay, and nothing is adjusted

    def begin(self, task: Sequence[int], labels: Tensor) -> None:
        """Set the task's classes and the label shares of the memory."""
        found, counts = labels.unique(return_counts=True)
        self.task = sorted(set(task))
        self.shares = {label: count / len(labels) for label, count in zip(found.tolist(), counts.tolist(), strict=True)}

    def adjust(self, output: Tensor, y: Tensor, current: int, strength: float) -> Tensor:
        """Return the logits for the loss; of the samples, ``current`` are the task's."""
        if not strength or not self.shares:
            return output
        prior = compute_prior(self.task, self.shares, current, len(y) - current, output.shape[1])
        return adjust_logits(output, y, prior, strength)

    def state_dict(self) -> dict[str, object]:
        """Return both."""
        return {"task": list(self.task), "shares": dict(self.shares)}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Load both."""
        task, shares = state["task"], state["shares"]
        assert isinstance(task, list)
        assert isinstance(shares, Mapping)
        self.task, self.shares = list(task), {int(label): float(share) for label, share in shares.items()}
