"""TMLN's path beside penalties and projections: the task's own gradient times what the weights really moved."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.methods.penalties import PENALTIES
from tmln.optim import TMLN


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*strength.*", category=UserWarning)
        yield


def task(k: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k)
    y = torch.arange(12) % 2 + 2 * k
    return torch.randn(12, 4, generator=generator, dtype=torch.float64).float() + y[:, None], y


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6)).double()


class Oracle:
    """omega by its definition: the gradient of the task's cross entropy before each step, and both ends of the step."""

    def __init__(self, learner: Learner, x: Tensor, y: Tensor) -> None:
        self.learner, self.x, self.y = learner, x.double(), y
        self.total = [torch.zeros_like(p) for p in learner.model.parameters()]
        self._look()

    def _look(self) -> None:
        weights = list(self.learner.model.parameters())
        loss = F.cross_entropy(self.learner.model(self.x), self.y)
        self.gradients = torch.autograd.grad(loss, weights)
        self.before = [p.detach().clone() for p in weights]

    def __call__(self, epoch: int, step: int, loss: float) -> None:
        optimizer = self.learner.step.optimizer
        assert isinstance(optimizer, TMLN)
        moves = zip(self.learner.model.parameters(), self.before, self.gradients, self.total, strict=True)
        for p, before, gradient, total in moves:
            total -= gradient * (p.detach() - before)
            torch.testing.assert_close(optimizer.path(p), total, rtol=1e-9, atol=1e-12)
        self._look()


def check(learner: Learner) -> None:
    for k in range(3):
        x, y = task(k)
        learner.learn((x, y), epochs=5, on_step=Oracle(learner, x, y))


SPRINGS = [name for name in PENALTIES if "proximal" in PENALTIES[name].Settings.model_fields]


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("options", [{}, {"step.momentum": 0.5, "step.weight_decay": 0.01}, {"step.clip_norm": 0.1}])
def test_penalties_that_change_the_gradient(penalty: str, options: dict[str, Any]) -> None:
    strength = {} if penalty == "none" else {"penalty.strength": 2.0}
    check(Learner(network(), replay="none", penalty=penalty, step="tmln", settings={**strength, **options}))


@pytest.mark.parametrize("penalty", SPRINGS)
def test_penalties_that_move_the_weights_after_the_step(penalty: str) -> None:
    settings = {"penalty.strength": 50.0, "penalty.proximal": True}
    check(Learner(network(), replay="none", penalty=penalty, step="tmln", settings=settings))


@pytest.mark.parametrize("penalty", ["none", "ewc", "lwf"])
def test_the_gradient_before_it_is_projected(penalty: str) -> None:
    strength = {} if penalty == "none" else {"penalty.strength": 2.0}
    settings = {"step.inner": "tmln", "step.batch": 6, **strength}
    check(Learner(network(), replay="none", penalty=penalty, step="a-gem", settings=settings))
