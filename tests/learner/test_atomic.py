"""A ``learn()`` that fails leaves the learner as it was; a learner can be copied and pickled."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Diverged, Learner
from tmln.methods import TaskContext
from tmln.methods.recipes import RECIPES
from tmln.streams import Samples

pytestmark = pytest.mark.usefixtures("narrow")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*strength.*", category=UserWarning)
        yield


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 6))


def task(k: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k)
    y = torch.arange(30) % 2 + 2 * k
    return torch.randn(30, 5, generator=generator) + y[:, None], y


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


class Stop(Exception):
    """What a user's own callback raises."""


@contextmanager
def fail_at_the_end(learner: Learner) -> Iterator[None]:
    """Let a task that takes no steps fail after the answer's end, which changes it; other tasks go on to their hook."""
    answer = learner.answer

    def end(context: TaskContext) -> None:
        type(answer).end(answer, context)
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        if not learner.step.trains_at(learner.step.settings, learner.tasks):
            patch.setattr(answer, "end", end)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("method", RECIPES)
@pytest.mark.parametrize("before", [0, 1], ids=["first task", "second task"])
def test_after_a_failure_all_is_as_before(method: str, before: int) -> None:
    """State, flags and what comes after: a learner that failed once goes on like one that never did."""
    torch.manual_seed(3)
    failed = Learner(network(), method, batch_size=10)
    for k in range(before):
        failed.learn(task(k))
    failed.model[1].eval()  # type: ignore[index]
    kept = copy.deepcopy(failed.state_dict())
    calm = copy.deepcopy(failed)
    random = torch.get_rng_state()

    def stop(epoch: int, step: int, loss: float) -> None:
        if (epoch, step) == (1, 1):
            raise Stop

    with fail_at_the_end(failed), pytest.raises(Stop):
        failed.learn(task(before), epochs=2, on_step=stop)
    assert same(failed.state_dict(), kept)
    assert failed.position.within is None
    assert [m.training for m in failed.model.modules()] == [m.training for m in calm.model.modules()]
    for learner in (failed, calm):
        torch.set_rng_state(random)
        learner.learn(task(before), epochs=2)
    assert same(failed.state_dict(), calm.state_dict())


def test_a_failure_at_the_boundary_is_undone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner(network(), "tmln", batch_size=10)
    kept = copy.deepcopy(learner.state_dict())

    def fail(context: object) -> None:
        raise FloatingPointError("at the end")

    monkeypatch.setattr(learner.step, "end", fail)
    with pytest.raises(FloatingPointError):
        learner.learn(task(0))
    assert same(learner.state_dict(), kept)
    assert learner.classes == ()


def test_divergence_leaves_what_was_learned_before() -> None:
    learner = Learner(network(), "naive", batch_size=10)
    learner.learn(task(0))
    kept = copy.deepcopy(learner.state_dict())
    x, y = task(1)
    x[25] = float("nan")
    with pytest.raises(Diverged):
        learner.learn(Samples.of(x, y))
    assert same(learner.state_dict(), kept)
    assert learner.classes == (0, 1)


def test_a_failed_resumption_stays_at_its_place() -> None:
    learner = Learner(network(), "er", batch_size=10)
    states: list[dict[str, Any]] = []
    learner.learn(task(0), on_step=lambda *step: states.append(copy.deepcopy(learner.state_dict())))
    again = Learner(network(), "er", batch_size=10)
    again.load_state_dict(copy.deepcopy(states[0]))

    def stop(*step: object) -> None:
        raise Stop

    with pytest.raises(Stop):
        again.learn(task(0), on_step=stop)
    assert same(again.state_dict(), states[0])
    again.learn(task(0))
    assert same(again.state_dict()["model"], learner.state_dict()["model"])


def test_without_the_copy_it_stays_where_it_failed() -> None:
    learner = Learner(network(), "naive", batch_size=10)

    def stop(*step: object) -> None:
        raise Stop

    with pytest.raises(Stop):
        learner.learn(task(0), atomic=False, on_step=stop)
    assert learner.classes == (0, 1)


def test_an_empty_task_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        Learner(network()).learn((torch.zeros(0, 5), torch.zeros(0, dtype=torch.long)))


def test_a_label_beyond_the_head_is_named() -> None:
    class Fixed(nn.Module):
        """Has no layer that could grow."""

        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.ones(5, 6))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.table

    x, y = task(0)
    with pytest.raises(ValueError, match=r"label 9, but the model has 6 outputs"):
        Learner(Fixed()).learn((x, y + 8))


def test_a_single_sample_left_over_is_named() -> None:
    x, y = task(0)
    learner = Learner(network(), "naive", batch_size=10)
    with pytest.raises(ValueError, match=r"one sample is left over, by which BatchNorm .* batch_size than 10"):
        learner.learn((x[:21], y[:21]))
    assert learner.tasks == 0


@pytest.mark.parametrize("lr", [0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("method", RECIPES)
def test_rates_that_are_none(method: str, lr: float) -> None:
    with pytest.raises(ValueError, match="lr must be positive and finite"):
        Learner(network(), method, lr=lr)


@pytest.mark.parametrize("method", RECIPES)
def test_a_learner_can_be_pickled_in_the_middle_of_its_life(method: str) -> None:
    learner = Learner(network(), method, batch_size=10)
    learner.learn(task(0))
    again = pickle.loads(pickle.dumps(learner))
    random = torch.get_rng_state()
    for one in (learner, again):
        torch.set_rng_state(random)
        one.learn(task(1))
    assert same(again.state_dict(), learner.state_dict())


@pytest.mark.slow
def test_a_compiled_learner_can_be_pickled() -> None:
    learner = Learner(network(), compile=True)
    again = pickle.loads(pickle.dumps(learner))
    assert again.trained.compile
    assert again.trained.forward is not again.model


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("method", RECIPES)
def test_data_take_the_models_precision(method: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6)).to(dtype)
    learner = Learner(model, method, lr=0.001, batch_size=10)
    for k in range(2):
        learner.learn(task(k))
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert 0.0 <= learner.evaluate(task(0))["accuracy"] <= 1.0
