"""The shield on Adam's direction: by hand, as AdamW where there is no shield, and what does not go with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.optim.test_tmln import D, batch, close, small, weights
from tmln.learner import Learner
from tmln.optim import TMLN, TMLNKFAC


@pytest.mark.parametrize("foreach", [True, False])
def test_two_tasks_by_hand(foreach: bool) -> None:
    """A first step of Adam is the sign of the gradient, whatever its size."""
    p = nn.Parameter(torch.zeros(2, dtype=D))
    optimizer = TMLN([p], lr=0.1, damping=0.5, trajectory=2.0, base="adam", base_eps=1e-12, foreach=foreach)
    p.grad = torch.tensor([4.0, -2.0], dtype=D)
    optimizer.step()
    close(p, [-0.1, 0.1])  # at lr, not at lr / damping
    close(optimizer.path(p), [0.4, 0.2])  # -g * dtheta
    optimizer.consolidate([torch.tensor([0.5, 0.25], dtype=D)])
    close(optimizer.state[p]["sensitivity"], [1.0, 0.5])
    assert not any(optimizer.state[p][key].any() for key in ("exp_avg", "exp_avg_sq", "step"))
    p.grad = torch.tensor([-3.0, 5.0], dtype=D)
    optimizer.step()
    slow = [(0.5 + 0.5 + 2.0) / 0.5, (0.25 + 0.5 + 1.0) / 0.5]  # (F + lambda + gamma*S-bar) / lambda
    close(p, [-0.1 + 0.1 / slow[0], 0.1 - 0.1 / slow[1]])
    close(optimizer.path(p), [3.0 * 0.1 / slow[0], 5.0 * 0.1 / slow[1]])
    assert optimizer.protection().slowdown_median == pytest.approx(sum(slow) / 2)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("form", ["scaled", "proximal"])
def test_the_first_task_is_adamw(form: Any, decay: float) -> None:
    ours, theirs = small(), small()
    a = TMLN(ours.parameters(), lr=0.01, form=form, base="adam", betas=(0.8, 0.9), weight_decay=decay)
    b = torch.optim.AdamW(theirs.parameters(), lr=0.01, betas=(0.8, 0.9), weight_decay=decay)
    for k in range(10):
        for model, optimizer in ((ours, a), (theirs, b)):
            optimizer.zero_grad()
            F.cross_entropy(model(batch(k)[0]), batch(k)[1]).backward()
            optimizer.step()
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-5, atol=1e-6)


def test_what_does_not_go_with_it() -> None:
    with pytest.raises(ValueError, match=r"base 'adam' has a momentum of its own.*momentum=0\.9"):
        TMLN([nn.Parameter(torch.zeros(1))], base="adam", momentum=0.9)
    with pytest.raises(ValueError, match="geometry 'kfac' has a direction of its own"):
        TMLNKFAC(nn.Linear(2, 2), base="adam")


def test_in_a_recipe() -> None:
    model = nn.Linear(3, 4)
    learner = Learner(
        model, "tmln", settings={"step.base": "adam", "step.beta1": 0.5, "step.match_base_lr": True}, lr=0.02
    )
    assert learner.step.effective_lr == 0.02
    assert learner.step.optimizer.param_groups[0]["betas"] == (0.5, 0.999)
    for settings, words in (
        ({"step.beta1": 0.5}, "step.beta1 = 0.5 is about Adam's means, and base 'sgd' has none"),
        ({"step.base": "adam", "step.momentum": 0.9}, "does not go with momentum 0.9"),
        ({"step.base": "adam", "step.geometry": "kfac"}, "does not go with geometry 'kfac'"),
    ):
        with pytest.raises(ValueError, match=words):
            Learner(model, "tmln", settings=settings)
