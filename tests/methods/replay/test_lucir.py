"""LUCIR: the margin by hand, the whole loss against a loop over samples, rows of earlier classes left alone."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from tmln.learner import Learner
from tmln.methods import Batch
from tmln.methods.replay.lucir import LUCIR, compute_margin_ranking


def test_margin_by_hand() -> None:
    """cos 0.9 of class 0 against 0.6 and 0.2 of the new ones, m = 0.5: max(0, 0.2) and max(0, -0.2), mean 0.1."""
    cosines = torch.tensor([[0.9, 0.0, 0.6, 0.2], [0.0, 0.0, 0.3, 0.9]])
    y = torch.tensor([0, 2])  # the second is of a new class and does not count
    assert float(compute_margin_ranking(cosines, y, [2, 3], 0.5, 2)) == pytest.approx(0.1)
    assert float(compute_margin_ranking(cosines, y, [2, 3], 0.5, 1)) == pytest.approx(0.2)
    assert float(compute_margin_ranking(cosines, y, [2, 3], 0.5, 0)) == 0
    assert float(compute_margin_ranking(cosines[1:], y[1:], [2, 3], 0.5, 2)) == 0


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a @ b / (a.norm() * b.norm())).detach())


def test_the_loss_against_a_loop_over_samples() -> None:
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(3, 6), nn.Tanh()).double(), nn.Linear(6, 4).double()
    model = nn.Sequential(body, head)
    learner = Learner(model, "lucir", lr=0.1, batch_size=8, settings={"replay.scale": 3.0, "replay.strength": 2.0})
    learner.learn((torch.randn(16, 3).double(), torch.arange(16) % 2))
    old, replay = copy.deepcopy(body), learner.replay
    assert isinstance(replay, LUCIR)
    replay.known, replay.new, replay.teacher = [0, 1], [2, 3], copy.deepcopy(model)
    with torch.no_grad():
        next(body.parameters()).mul_(0.5)
    x, y = torch.randn(5, 3).double(), torch.tensor([2, 3, 2, 0, 1])
    loss, output = replay.loss(model, Batch(x, y, 3))
    entropy = forget = margin = 0.0
    for i in range(5):
        features, before = body(x[i]), old(x[i])
        scores = [cosine(features, row) for row in head.weight]
        assert output[i].tolist() == pytest.approx([3 * score for score in scores])
        entropy -= math.log(math.exp(3 * scores[y[i]]) / sum(math.exp(3 * score) for score in scores)) / 5
        forget += (1 - cosine(features, before)) / 5
        if y[i] < 2:
            margin += sum(max(0.0, 0.5 - scores[y[i]] + scores[k]) for k in (2, 3)) / 4
    assert float(loss.detach()) == pytest.approx(entropy + 2.0 * math.sqrt(2 / 2) * forget + margin, abs=1e-9)
    model.zero_grad()
    loss.backward()
    gradient = head.weight.grad
    assert gradient is not None
    assert not gradient[:2].any()
    assert gradient[2:].any()


def test_it_remembers_more_than_naive_training() -> None:
    torch.manual_seed(0)
    centres = 3 * torch.randn(6, 4)
    data = [(torch.arange(120) % 2 + 2 * k) for k in range(3)]
    tasks = [(centres[y] + 0.5 * torch.randn(120, 4), y) for y in data]
    found = {}
    for method in ("naive", "lucir"):
        torch.manual_seed(1)
        learner = Learner(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 6)), method, lr=0.05, batch_size=20)
        for x, y in tasks:
            learner.learn((x, y), epochs=5)
        found[method] = sum(learner.evaluate(task)["accuracy"] for task in tasks) / 3
    assert found["naive"] < 0.5
    assert found["lucir"] > 0.85
