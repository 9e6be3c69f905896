"""The closure: the first call counts, later ones are the same function and leave nothing behind but the gradient."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.learner.test_resume import everything
from tmln.learner import Learner
from tmln.methods import Closure, TaskContext
from tmln.methods.penalties import PENALTIES
from tmln.methods.replay import REPLAYS
from tmln.methods.steps import STEPS
from tmln.methods.steps.sgd import SGDStep


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*strength.*", category=UserWarning)
        yield


def network() -> nn.Module:
    """Statistics that move and noise that is drawn in every training pass."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 6))


def data(k: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k)
    y = torch.randint(2, (40,), generator=generator) + 2 * k
    return torch.randn(40, 5, generator=generator) + y[:, None], y


def noisy(x: Tensor, generator: torch.Generator) -> Tensor:
    return x + 0.1 * torch.randn(x.shape, generator=generator)


class Thrice(SGDStep):
    """Asks here, elsewhere, and here again, and moves along what it was told last."""

    def step(self, closure: Closure, context: TaskContext) -> None:
        weights: list[Tensor] = list(context.model.parameters())
        value = closure()
        first = [p.grad for p in weights]
        with torch.no_grad():
            here = [p.clone() for p in weights]
            torch._foreach_add_(weights, 0.1)
        assert closure() != value
        with torch.no_grad():
            torch._foreach_copy_(weights, here)
        assert closure() == value
        for p, gradient in zip(weights, first, strict=True):
            assert p.grad is not gradient
            assert p.grad is not None
            assert gradient is not None
            assert torch.equal(p.grad, gradient)
        self.optimizer.step()


def learned(replay: str, penalty: str, mask: Any = "none") -> tuple[Learner, list[float]]:
    settings = {f"penalty.{key}": value for key, value in PENALTIES[penalty].active_settings.items()}
    learner = Learner(
        network(), "naive", replay=replay, penalty=penalty, settings=settings, batch_size=10, augment=noisy,
        logit_mask=mask,
    )  # fmt: skip
    losses: list[float] = []
    torch.manual_seed(5)
    for k in range(3):
        learner.learn(data(k), epochs=2, on_step=lambda epoch, step, loss: losses.append(loss))
    return learner, losses


@pytest.mark.slow
@pytest.mark.parametrize(("replay", "penalty"), list(itertools.product(REPLAYS, PENALTIES)))
def test_what_is_asked_thrice_counts_once(replay: str, penalty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, running statistics, random numbers, memories, stored logits, running Fishers and paths: bit for bit."""
    once, told = learned(replay, penalty)
    monkeypatch.setitem(STEPS, "sgd", Thrice)
    thrice, told_again = learned(replay, penalty)
    assert told == told_again
    for a, b in zip(everything(once), everything(thrice), strict=True):
        assert torch.equal(a, b)


def test_closed_classes_stay_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    once, _ = learned("er", "lwf", "seen")
    monkeypatch.setitem(STEPS, "sgd", Thrice)
    for a, b in zip(everything(once), everything(learned("er", "lwf", "seen")[0]), strict=True):
        assert torch.equal(a, b)


class Deaf(SGDStep):
    """Moves along whatever is there."""

    def step(self, closure: Closure, context: TaskContext) -> None:
        self.optimizer.step()


def test_a_step_that_never_asks_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEPS, "sgd", Deaf)
    with pytest.raises(RuntimeError, match=r"'sgd' never asked for the gradient: call closure\(\)"):
        Learner(network(), "naive", batch_size=10).learn(data(0))


def test_steps_of_torch_that_ask_often() -> None:
    """LBFGS looks along a line: the loss falls, and nothing is counted twice."""

    class LBFGS(SGDStep):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.optimizer = torch.optim.LBFGS(given[1].parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(STEPS, "sgd", LBFGS)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
        learner = Learner(model, "naive", step="sgd", batch_size=40)
        losses: list[float] = []
        learner.learn(data(0), epochs=6, on_step=lambda epoch, step, loss: losses.append(loss))
    assert losses[-1] < 0.5 * losses[0]
    assert int(model[1].num_batches_tracked) == 6  # type: ignore[arg-type]
