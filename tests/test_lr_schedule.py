"""The rate within a task: by hand, as every part sees it, resumed to the bit, and left alone where it is constant."""

from __future__ import annotations

import doctest
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tmln.lr_schedule
from tmln.experiments.build import learner_of, stream_of
from tmln.experiments.config import RunConfig, run_id
from tmln.learner import Learner
from tmln.lr_schedule import Schedule, rate_factor
from tmln.methods.penalties.quadratic import Quadratic
from tmln.optim import OCAR, TMLN

STEPS = 6  # of a task: 2 epochs of 12 samples, 4 at a time


def data(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(12, 3, generator=generator), torch.randint(4, (12,), generator=generator)


def learner(method: str = "naive", **options: Any) -> Learner:
    torch.manual_seed(0)
    return Learner(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4)), method, batch_size=4, **options)


def weights(trained: Learner) -> list[Tensor]:
    return [p.detach().clone() for p in trained.model.parameters()]


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def rates(trained: Learner, task: int = 0) -> list[float]:
    """The step's rate after every step of a task, as it was in it."""
    found: list[float] = []
    trained.learn(
        data(task),
        epochs=2,
        on_step=lambda epoch, number, loss: found.append(trained.step.optimizer.param_groups[0]["lr"]),
    )
    return found


def test_factors_by_hand() -> None:
    assert [rate_factor("constant", 0, t, 4) for t in range(4)] == [1, 1, 1, 1]
    assert [rate_factor("linear", 0, t, 4) for t in range(4)] == [1, 0.75, 0.5, 0.25]
    half = math.sqrt(0.5)
    expected = [1, (1 + half) / 2, 0.5, (1 - half) / 2]
    assert [rate_factor("cosine", 0, t, 4) for t in range(4)] == pytest.approx(expected)
    assert [rate_factor("cosine", 2, t, 6) for t in range(6)] == pytest.approx([0.5, 1, *expected])
    assert [Schedule("constant", 0.5).factor(t, 4) for t in range(4)] == [0.5, 1, 1, 1]
    assert [Schedule("linear", 8).factor(t, 4) for t in range(4)] == [1 / 8, 2 / 8, 3 / 8, 4 / 8]
    assert doctest.testmod(tmln.lr_schedule).failed == 0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"schedule": "cosin"}, "schedule must be one of constant, cosine, linear; got 'cosin'"),
        ({"warmup": -1}, "warmup is a share"),
        ({"warmup": 2.5}, "whole number of steps; got 2.5"),
        ({"warmup": math.nan}, "warmup"),
    ],
)
def test_what_is_no_schedule(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        learner(**values)
    with pytest.raises(ValueError, match="warmup" if "warmup" in values else "schedule"):
        RunConfig.of({"benchmark": "split-digits", **values})


def test_every_task_goes_through_it_and_the_rate_comes_back() -> None:
    trained = learner(lr=0.2, schedule="linear", warmup=2)
    for task in range(2):
        assert rates(trained, task) == pytest.approx([0.1, 0.2, 0.2, 0.15, 0.1, 0.05])
        group = trained.step.optimizer.param_groups[0]
        assert group["lr"] == 0.2
        assert "initial_lr" not in group
    assert rates(learner("tmln", settings={"step.match_base_lr": True}, lr=0.2, schedule="linear"))[1] == pytest.approx(
        0.2 * 0.1 * 5 / 6
    )


def test_constant_is_as_without() -> None:
    plain, constant = learner("tmln"), learner("tmln", schedule="constant", warmup=0)
    for trained in (plain, constant):
        trained.learn(data(0), epochs=2)
    assert equal(weights(plain), weights(constant))
    assert plain.step.optimizer.state_dict()["param_groups"] == constant.step.optimizer.state_dict()["param_groups"]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("er", {}),
        ("tmln", {}),
        ("tmln", {"step.form": "proximal"}),
        ("tmln-kfac", {}),
        ("ewc", {}),
        ("rwalk", {}),
        ("ocar", {"step.damping_init": "lr", "step.update_every": 2}),
        ("a-gem", {"step.inner": "tmln"}),
    ],
)
def test_resumed_to_the_bit(method: str, settings: dict[str, Any]) -> None:
    options: dict[str, Any] = {"settings": settings, "schedule": "cosine", "warmup": 0.4}
    whole, stopped, resumed = (learner(method, **options) for _ in range(3))
    for trained in (whole, stopped):
        trained.learn(data(0), epochs=2)

    def stop(epoch: int, number: int, loss: float) -> None:
        if (epoch, number) == (1, 0):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        stopped.learn(data(1), epochs=2, atomic=False, on_step=stop)
    resumed.load_state_dict(stopped.state_dict())
    for trained in (whole, resumed):
        trained.learn(data(1), epochs=2)
        trained.learn(data(2), epochs=2)
    assert equal(weights(whole), weights(resumed))


def test_what_fails_leaves_the_rate_as_it_was() -> None:
    trained = learner(lr=0.2, schedule="linear")

    def fail(epoch: int, number: int, loss: float) -> None:
        if number == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        trained.learn(data(0), epochs=2, on_step=fail)
    assert rates(trained) == pytest.approx([0.2 * (1 - t / STEPS) for t in range(STEPS)])


@pytest.mark.parametrize("settings", [{}, {"step.form": "proximal"}, {"step.momentum": 0.5}])
def test_the_path_is_that_of_the_displacement_at_every_rate(settings: dict[str, Any]) -> None:
    """omega = -sum g*dtheta, with g and dtheta of each step as they were."""
    trained = learner("tmln", settings=settings, schedule="cosine", warmup=2)
    trained.model.double()
    trained.prepare = lambda x: x
    x, y = data(0)
    trained.learn((x.double(), y), epochs=1)
    optimizer, before = trained.step.optimizer, weights(trained)
    assert isinstance(optimizer, TMLN)
    paths = [torch.zeros_like(p) for p in before]

    def walk(epoch: int, number: int, loss: float) -> None:
        for path, old, p in zip(paths, before, trained.model.parameters(), strict=True):
            assert p.grad is not None
            path -= p.grad * (p.detach() - old)
            old.copy_(p.detach())
            torch.testing.assert_close(optimizer.path(p), path, rtol=1e-9, atol=1e-13)

    trained.learn((x.double(), y), epochs=2, on_step=walk)


def test_exact_steps_of_a_penalty_take_the_rate_of_the_step() -> None:
    trained = learner("ewc", lr=0.2, schedule="linear")
    trained.learn(data(0), epochs=2)
    penalty, seen = trained.penalty, []
    assert isinstance(penalty, Quadratic)
    assert penalty.settings.proximal
    trained.learn(data(1), epochs=2, on_step=lambda epoch, number, loss: seen.append(penalty.rate))
    assert seen == pytest.approx([0.2 * (1 - t / STEPS) for t in range(STEPS)])
    assert penalty.rate == 0.2


def test_ocars_damping_starts_at_the_configured_rate() -> None:
    trained = learner("ocar", settings={"step.damping_init": "lr"}, lr=0.2, schedule="linear", warmup=4)
    trained.learn(data(0), epochs=2)
    assert isinstance(trained.step.optimizer, OCAR)
    assert trained.step.optimizer.damping == pytest.approx(0.2)


def test_a_runs_name_has_it_where_it_is_not_the_default() -> None:
    def config(**values: Any) -> RunConfig:
        return RunConfig.of({"benchmark": "split-digits", "method": "er", **values})

    assert not {"schedule", "warmup"} & config().resolved().keys()
    assert run_id(config(schedule="constant", warmup=0)) == run_id(config())
    assert len({run_id(config(**v)) for v in ({}, {"schedule": "cosine"}, {"warmup": 0.1}, {"warmup": 5})}) == 4
    asked = config().with_settings({"warmup": "0.1", "schedule": "cosine"})
    assert RunConfig.from_yaml(asked.to_yaml()).resolved() == asked.resolved()
    made = learner_of(asked, stream_of(asked))
    assert made.lr_schedule == Schedule("cosine", 0.1)


def test_a_saved_learner_has_it(tmp_path: Any) -> None:
    trained = learner(schedule="cosine", warmup=3)
    trained.learn(data(0))
    trained.save(tmp_path / "it.tmln")
    assert Learner.load(tmp_path / "it.tmln", learner().model).lr_schedule == Schedule("cosine", 3)
