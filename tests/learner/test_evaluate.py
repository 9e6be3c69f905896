"""Accuracy over all classes, over those met so far, and over the task's own: by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tmln.learner.evaluation import evaluate_tasks
from tmln.streams import Samples

LOGITS = torch.tensor(
    [
        [5.0, 4.0, 0.0, 9.0],  # of class 0: class 3 wins, of 0 and 1 class 0
        [5.0, 4.0, 0.0, 1.0],  # of class 1: class 0 wins either way
        [0.0, 4.0, 9.0, 1.0],  # of class 1: class 2 wins, of 0 and 1 class 1
        [0.0, 4.0, 1.0, 1.0],  # of class 1: class 1 wins
    ]
)


class Said(nn.Module):
    """Its inputs are its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


def measured(open_classes: tuple[int, ...] | None = None) -> dict[str, float]:
    samples = Samples.of(LOGITS, torch.tensor([0, 1, 1, 1]))
    (found,) = evaluate_tasks(Said(), [(samples, (0, 1))], lambda x: x, open_classes=open_classes, batch_size=3)
    return found


def test_a_task_that_is_told_is_easier() -> None:
    found = measured()
    assert (found["accuracy"], found["masked_accuracy"]) == (1 / 4, 3 / 4)
    assert found["loss"] == pytest.approx(float(nn.functional.cross_entropy(LOGITS, torch.tensor([0, 1, 1, 1]))))


def test_where_no_task_is_told_there_is_no_accuracy_within_it() -> None:
    samples = Samples.of(LOGITS, torch.tensor([0, 1, 1, 1]))
    (found,) = evaluate_tasks(Said(), [(samples, None)], lambda x: x, batch_size=3)
    assert found == {key: value for key, value in measured().items() if key != "masked_accuracy"}


def test_closed_classes_do_not_compete_and_the_told_task_is_the_same() -> None:
    found = measured(open_classes=(0, 1, 2))
    assert (found["accuracy"], found["masked_accuracy"]) == (2 / 4, 3 / 4)
