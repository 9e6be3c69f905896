"""Training from scratch on the memory: it depends on the memory and the initial weights alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tmln.learner import Learner
from tmln.methods.steps.retrain import cosine_factor


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 4)


def learner(**settings: object) -> Learner:
    chosen = {"step.epochs": 3, "step.batch": 4, "step.momentum": 0.0, "step.weight_decay": 0.0}
    return Learner(network(), "gdumb", lr=0.5, batch_size=4, settings={**chosen, **settings})


def test_the_rate_follows_half_a_cosine() -> None:
    assert [cosine_factor(step, 4) for step in (0, 2, 4)] == pytest.approx([1.0, 0.505, 0.01])


def test_one_full_batch_by_hand() -> None:
    """With one step from the initial weights: theta_0 - eta * g of the memory."""
    x, y = torch.randn(8, 3), torch.arange(8) % 4
    trained = learner(**{"step.epochs": 1, "step.batch": 8})
    trained.learn((x, y))
    model = network()
    nn.functional.cross_entropy(model(x), y).backward()
    for p, own in zip(trained.model.parameters(), model.parameters(), strict=True):
        assert own.grad is not None
        torch.testing.assert_close(p.detach(), own.detach() - 0.5 * own.grad)


def test_the_memory_is_all_that_counts() -> None:
    """Weights before the task's end do not matter: they are put back to where they began."""
    x, y = torch.randn(20, 3), torch.arange(20) % 4
    plain, disturbed = learner(), learner()
    for k, trained in enumerate((plain, disturbed)):
        trained.learn((x[:10], y[:10]))
        with torch.no_grad():
            for p in trained.model.parameters():
                p.add_(k)
        trained.learn((x[10:], y[10:]))
    assert torch.equal(plain.model.weight, disturbed.model.weight)  # type: ignore[arg-type]


def test_without_a_memory_it_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match="replay=er"):
        Learner(network(), "naive", step="retrain")
