"""The cosine answer: by hand, against a loop, and within an exported layer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tmln.learner import Learner
from tmln.methods.answers.cosine import compute_cosines


def test_cosines_by_hand() -> None:
    found = compute_cosines(torch.tensor([[3.0, 4.0]]), torch.tensor([[10.0, 0.0], [0.0, -1.0], [1.0, 1.0]]))
    assert found.tolist() == [pytest.approx([0.6, -0.8, 7 / 5 / math.sqrt(2)])]


def test_the_longest_row_does_not_win() -> None:
    head = nn.Linear(2, 3, bias=False)
    model = nn.Sequential(nn.Identity(), head)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 0.0], [9.0, 9.0], [0.0, 1.0]]))
    x = torch.tensor([[5.0, 0.1], [0.1, 5.0], [1.0, 1.0]])
    learner = Learner(model, "naive", answer="cosine", lr=1e-12)
    learner.learn((x, torch.arange(3)))
    assert model(x).argmax(1).tolist() == [1, 1, 1]
    assert [found.index for found in learner.predict(x)] == [0, 2, 1]
    output, scores = learner.answer.scores(model, x)
    with learner.answer.in_model(model, x):
        assert torch.allclose(model(x), scores)
    assert torch.equal(model(x), output)
