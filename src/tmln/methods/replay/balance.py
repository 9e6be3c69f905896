"""Class frequency taken out of the replay loss: logits + balance*log(prior) (Menon et al. 2021, logit adjustment).

The newest classes win by their frequency: half of a batch is theirs, and all older classes share the other half. A loss
that knows how often each class comes need not teach that to the weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def class_prior(task: Sequence[int], shares: Mapping[int, float], current: int, replayed: int, outputs: int) -> Tensor:
    """n/(n+m) uniform over the task's classes + m/(n+m) the memory's label shares; 0 for classes that neither has.

    >>> class_prior((2, 3), {0: 0.6, 1: 0.4}, 8, 8, 5)
    tensor([0.3000, 0.2000, 0.2500, 0.2500, 0.0000])
    """
    prior = [0.0] * outputs
    for label in task:
        prior[label] += current / (current + replayed) / len(task)
    for label, share in shares.items():
        prior[label] += replayed / (current + replayed) * share
    return torch.tensor(prior)


def balanced_rule(equation: str) -> str:
    r"""A loss in LaTeX whose cross entropies of labels take f + b*log(prior); nothing else does.

    >>> balanced_rule(r"\mathrm{CE}(f(x), y) + \mathrm{MSE}(f(x'), z')")
    "\\mathrm{CE}(f(x) + b \\log \\text{prior}, y) + \\mathrm{MSE}(f(x'), z')"
    """
    return re.sub(r"(f\([^)]*\)), y", r"\1 + b \\log \\text{prior}, y", equation)


def balanced(output: Tensor, y: Tensor, prior: Tensor, strength: float) -> Tensor:
    """``output + strength*log(prior)``: a class without a prior is closed (-inf).

    One that is in the batch all the same (a blurry boundary's) counts as often as it would with one sample in it.
    """
    prior = prior.to(output.device)
    met = torch.zeros_like(prior, dtype=torch.bool)
    met[y] = True
    prior = torch.where(met & (prior == 0), 1 / len(y), prior)
    return output + strength * prior.log().to(output.dtype)


class Frequencies:
    """What a task's batches are made of, set when it begins: its classes, and the label shares of the memory then."""

    def __init__(self) -> None:
        self.task: list[int] = []
        self.shares: dict[int, float] = {}  # empty: there was nothing to replay, and nothing is adjusted

    def begin(self, task: Sequence[int], labels: Tensor) -> None:
        found, counts = labels.unique(return_counts=True)
        self.task = sorted(set(task))
        self.shares = {label: count / len(labels) for label, count in zip(found.tolist(), counts.tolist(), strict=True)}

    def adjusted(self, output: Tensor, y: Tensor, current: int, strength: float) -> Tensor:
        """The output as the loss takes it, of samples with the labels ``y``, of which ``current`` are the task's."""
        if not strength or not self.shares:
            return output
        prior = class_prior(self.task, self.shares, current, len(y) - current, output.shape[1])
        return balanced(output, y, prior, strength)

    def state_dict(self) -> dict[str, object]:
        return {"task": list(self.task), "shares": dict(self.shares)}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        task, shares = state["task"], state["shares"]
        assert isinstance(task, list)
        assert isinstance(shares, Mapping)
        self.task, self.shares = list(task), {int(label): float(share) for label, share in shares.items()}
