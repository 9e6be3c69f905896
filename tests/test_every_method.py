"""Every named method learns Split-Digits, reproducibly, above a floor; the defaults are the paper's."""

from __future__ import annotations

import warnings
from functools import cache

import pytest
import torch

from tmln import metrics
from tmln.learner import Learner
from tmln.methods.recipes import RECIPES
from tmln.models import make_model
from tmln.streams import Stream, make_stream

pytestmark = pytest.mark.usefixtures("narrow")


def digits() -> Stream:
    """Half of Split-Digits: enough for every floor, in half of the time."""
    return make_stream("split-digits", per_class=72)


@cache
def trained(method: str, seed: int = 0) -> list[list[float]]:
    """The accuracy matrix after ten epochs a task."""
    stream = digits()
    torch.manual_seed(seed)
    learner = Learner(
        make_model("mlp", stream.shape, stream.classes),
        method,
        batch_size=32,
        seed=seed,
        augment=stream.augment,
        prepare=stream.prepare,
    )
    matrix = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*strength.*", category=UserWarning)
        for task in stream:
            learner.learn(task.train, epochs=10, classes=task.classes)
            matrix.append([learner.evaluate(test)["accuracy"] for test in stream.tests])
    return matrix


@pytest.mark.parametrize("method", RECIPES)
def test_learns_above_a_floor(method: str) -> None:
    """A method with a memory must keep most of what it learned; one without must at least learn."""
    R = trained(method)
    remembers = RECIPES[method].replay.name != "none" or RECIPES[method].joint or method == "a-gem"
    assert R[0][0] > 0.95, "the first task is plain training"
    if remembers:
        assert metrics.average_accuracy(R) > 0.6
        assert metrics.forgetting(R) < 0.4
    else:
        assert metrics.learning_accuracy(R) > 0.4
        assert metrics.average_accuracy(R) > 0.15


def test_replay_and_the_oracle_are_in_order() -> None:
    acc = {method: metrics.average_accuracy(trained(method)) for method in ("naive", "er", "tmln", "joint")}
    assert acc["naive"] < 0.3 < acc["er"]
    assert acc["naive"] < 0.3 < acc["tmln"] < acc["joint"]


def test_joint_starts_afresh_on_all_data_so_far() -> None:
    """Its diagonal is the reference of intransigence: each row is a run of its own on tasks 1..k."""
    stream = digits()
    R = trained("joint")
    assert min(R[k][j] for k in range(5) for j in range(k + 1)) > 0.85
    torch.manual_seed(0)
    alone = Learner(
        make_model("mlp", stream.shape, stream.classes),
        "naive",
        batch_size=32,
        augment=stream.augment,
        prepare=stream.prepare,
    )
    alone.learn(stream[0].train, epochs=10)
    assert alone.evaluate(stream[0].test)["accuracy"] == R[0][0]  # with one task, joint is naive


def test_defaults_are_the_papers() -> None:
    settings = {
        method: {family: RECIPES[method].resolve(family)[1].model_dump() for family in ("replay", "penalty", "step")}
        for method in RECIPES
    }
    assert settings["naive"]["step"]["momentum"] == settings["er"]["step"]["momentum"] == 0.9
    assert settings["joint"]["step"]["momentum"] == 0.9
    for method in ("er", "rwalk", "ocar", "tmln", "tmln-static", "tmln-euclidean"):
        assert settings[method]["replay"]["capacity"] == 500
        assert settings[method]["replay"]["fill"] == "end"
    for method in ("ewc++", "rwalk"):
        assert settings[method]["step"]["momentum"] == 0.0
    assert settings["ewc++"]["penalty"]["strength"] == 10000
    assert settings["ewc++"]["penalty"]["alpha"] == 0.9
    rwalk = settings["rwalk"]["penalty"]
    assert (rwalk["strength"], rwalk["alpha"], rwalk["interval"]) == (10, 0.8, 50)
    upgd = settings["upgd"]["step"]
    assert (upgd["beta_utility"], upgd["sigma"], upgd["factor"], upgd["variant"]) == (0.99, 0.1, 1.0, "global")
    assert settings["ocar"]["step"]["damping"] == 0.1
    tmln = settings["tmln"]["step"]
    assert (tmln["damping"], tmln["trajectory"], tmln["momentum"], tmln["eps"]) == (0.1, 1.0, 0.0, 1e-8)
    assert settings["tmln-static"]["step"]["trajectory"] == 0.0
    assert settings["tmln-euclidean"]["step"]["geometry"] == "euclidean"
