"""Replay under a teacher: its losses by hand, who teaches what, and how much."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.methods.replay.distill import compute_sigmoid_loss


def task(k: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k)
    y = torch.arange(20) % 2 + 2 * k
    return torch.randn(20, 5, generator=generator) + y[:, None], y


def learner(**settings: Any) -> Learner:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6))
    return Learner(
        model, "naive", replay="distill", settings={f"replay.{k}": v for k, v in settings.items()}, batch_size=10
    )


def test_the_sigmoid_loss_by_hand() -> None:
    """Logit 0 is a half. Known class 0 is asked for 3/4, class 1 is the label, class 2 is not, class 3 was not met."""
    output = torch.tensor([[0.0, math.log(3), 0.0, 9.0]])
    taught = torch.tensor([[math.log(3), 5.0, 5.0, 5.0]])
    loss = compute_sigmoid_loss(output, torch.tensor([1]), taught, [0], [1, 2])
    assert loss.item() == pytest.approx(math.log(2) - math.log(0.75) + math.log(2))
    alone = compute_sigmoid_loss(output, torch.tensor([1]), None, [], [1, 2])
    assert alone.item() == pytest.approx(-math.log(0.75) + math.log(2))


def test_a_known_class_is_taught_whatever_the_label() -> None:
    """A replayed sample of class 0, of which the teacher is not sure: what counts is what the teacher says."""
    output, taught = torch.zeros(1, 2, requires_grad=True), torch.zeros(1, 2)
    compute_sigmoid_loss(output, torch.tensor([0]), taught, [0], [1]).backward()
    assert output.grad is not None
    assert output.grad.tolist() == [[0.0, 0.5]]


def test_how_much_the_teacher_counts() -> None:
    for settings, expected in (({}, [0.0, 1 / 2, 2 / 3]), ({"share": 0.25}, [0.0, 0.25, 0.25])):
        trained, found = learner(loss="softmax", **settings), []
        for k in range(3):
            trained.learn(task(k))
            found.append(trained.replay.weight)  # type: ignore[attr-defined]
        assert found == pytest.approx(expected)
    trained.learn(task(2))  # the same classes again: they are known, and half of what is asked for
    assert trained.replay.weight == 0.25  # type: ignore[attr-defined]


def test_without_a_share_nobody_teaches() -> None:
    trained = learner(loss="softmax", share=0.0)
    for k in range(2):
        trained.learn(task(k))
    assert trained.replay.teacher is None  # type: ignore[attr-defined]


def test_balance_is_for_a_softmax() -> None:
    with pytest.raises(ValueError, match=r"balance = 1 adjusts a softmax, and replay\.loss = 'sigmoid' has none"):
        learner(balance=1.0)
    learner(balance=1.0, loss="softmax").learn(task(0))
