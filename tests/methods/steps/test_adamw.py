"""The AdamW step: by hand, against torch's own in a plain loop, and what a boundary forgets."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.methods.steps.test_steps import asked, context, data, make
from tmln.learner import Learner


def one_weight(at: float) -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, at)
    return model


def test_two_steps_by_hand_and_the_reset() -> None:
    """m/(1-0.9) = 1, v/(1-0.999) = 1: a move of eta. Then m = -0.01, over 1 - 0.81: -0.0526316; v-hat is still 1."""
    model = one_weight(0.0)
    step = make("adamw", model, weight_decay=0.0)
    moves = []
    for index, gradient in ((0, 1.0), (0, -1.0), (1, -1.0)):
        if index:
            step.begin(context(model, *data(), index=index))
        before = model.weight.item()
        model.weight.grad = torch.full((1, 1), gradient)
        step.step(asked, context(model, *data(), index=index))
        moves.append(model.weight.item() - before)
    assert moves == pytest.approx([-0.1, 0.00526316, 0.1], rel=1e-4)


def test_means_are_kept_on_request() -> None:
    model = one_weight(0.0)
    step = make("adamw", model, weight_decay=0.0, reset=False)
    model.weight.grad = torch.ones(1, 1)
    step.step(asked, context(model, *data()))
    step.begin(context(model, *data(), index=1))
    before = model.weight.item()
    model.weight.grad = -torch.ones(1, 1)
    step.step(asked, context(model, *data()))
    assert model.weight.item() - before == pytest.approx(0.00526316, rel=1e-4)


def test_decay_is_decoupled() -> None:
    """2*(1 - 0.1*0.5) - 0.1: the gradient's size has no say in either."""
    model = one_weight(2.0)
    step = make("adamw", model, weight_decay=0.5)
    model.weight.grad = torch.full((1, 1), 37.0)
    step.step(asked, context(model, *data()))
    assert model.weight.item() == pytest.approx(1.8)


def test_a_task_is_that_of_a_plain_loop() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 4)
    twin = nn.Linear(3, 4)
    twin.load_state_dict(model.state_dict())
    x, y = data()
    settings = {"step.beta1": 0.8, "step.beta2": 0.9, "step.eps": 1e-3, "step.weight_decay": 0.1}
    Learner(model, "adamw", settings=settings, lr=0.02, batch_size=12).learn((x, y), epochs=4)
    optimizer = torch.optim.AdamW(twin.parameters(), 0.02, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(twin(x), y).backward()
        optimizer.step()
    torch.testing.assert_close(model.weight, twin.weight)
