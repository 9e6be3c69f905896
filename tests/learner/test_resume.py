"""Stop anywhere, save, load into a fresh learner: the rest is bit for bit as if nothing had happened."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.learner.state import full_recipe
from tmln.methods.recipes import RECIPES

pytestmark = pytest.mark.usefixtures("narrow")

TASKS, EPOCHS, STEPS = 3, 2, 4
UNTRAINED = ("frozen", "first-session", "retrain")  # no steps to stop at: tests/methods/answers/test_closed_form.py


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*strength.*", category=UserWarning)
        yield


def data(k: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k)
    y = torch.randint(2, (40,), generator=generator) + 2 * k
    return torch.randn(40, 5, generator=generator) + y[:, None], y


def network(seed: int) -> nn.Module:
    """With batch norm and dropout, so that buffers and the global random state count."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 6))


def noisy(x: Tensor, generator: torch.Generator) -> Tensor:
    return x + 0.1 * torch.randn(x.shape, generator=generator)


class Stopped(Exception):
    pass


def everything(learner: Learner) -> list[Tensor]:
    def tensors(state: object) -> Iterator[Tensor]:
        if isinstance(state, Tensor):
            yield state
        elif isinstance(state, dict):
            for key in sorted(state, key=str):
                yield from tensors(state[key])
        elif isinstance(state, (list, tuple)):
            for value in state:
                yield from tensors(value)

    return list(tensors(learner.state_dict()))


@pytest.mark.slow
@pytest.mark.parametrize("logit_mask", ["none", "seen"])
@pytest.mark.parametrize("method", [name for name, recipe in RECIPES.items() if recipe.step.name not in UNTRAINED])
def test_resume_is_exact_for_every_method(method: str, logit_mask: Literal["none", "seen"], tmp_path: Path) -> None:
    """Saved in the middle of the second task, where teachers teach, and at two random steps."""
    options: dict[str, Any] = {"lr": 1e-3, "batch_size": 10, "seed": 1, "augment": noisy, "logit_mask": logit_mask}
    whole = Learner(network(0), method, **options)
    torch.manual_seed(5)
    for k in range(TASKS):
        whole.learn(data(k), EPOCHS)

    middle = EPOCHS * STEPS + STEPS
    others = [step for step in range(1, TASKS * EPOCHS * STEPS) if step != middle]
    stops = [middle, *random.Random(method).sample(others, 2)]
    learner = Learner(network(0), method, **options)
    torch.manual_seed(5)
    taken = 0

    def count(epoch: int, step: int, loss: float) -> None:
        nonlocal taken
        taken += 1
        if taken in stops:
            stops.remove(taken)
            raise Stopped

    while learner.tasks < TASKS:
        try:
            learner.learn(data(learner.tasks), EPOCHS, atomic=False, on_step=count)
        except Stopped:
            learner.save(tmp_path / "half.tmln")
            torch.manual_seed(77)  # a new process has another random state
            history = [data(k) for k in range(learner.tasks)]
            learner = Learner.load(tmp_path / "half.tmln", network(9), augment=noisy, history=history)
    assert taken == EPOCHS * STEPS * (1 + 2 + 3 if method == "joint" else TASKS)
    assert not stops
    for a, b in zip(everything(whole), everything(learner), strict=True):
        assert torch.equal(a, b)


def test_states_of_before_there_were_families_by_name_are_read() -> None:
    """Their parts were a list: replay, penalty, step."""
    learner = Learner(network(0), "tmln", batch_size=10)
    learner.learn(data(0))
    state = learner.state_dict()
    old = {**state, "parts": [state["parts"][family] for family in ("replay", "penalty", "step")]}
    again = Learner(network(1), "tmln", batch_size=10)
    again.load_state_dict(old)
    for a, b in zip(everything(learner), everything(again), strict=True):
        assert torch.equal(a, b)


def test_what_a_file_needs_to_be_loaded(tmp_path: Path) -> None:
    learner = Learner(network(0), "joint", batch_size=10)
    learner.learn(data(0))
    learner.save(tmp_path / "joint.tmln")
    with pytest.raises(ValueError, match="pass their data as history, got 0"):
        Learner.load(tmp_path / "joint.tmln", network(0))
    changed = Learner(network(0), "tmln", settings={"step.damping": 0.3}, lr=0.002, batch_size=7, seed=4)
    changed.save(tmp_path / "changed.tmln")
    loaded = Learner.load(tmp_path / "changed.tmln", network(0))
    assert full_recipe(loaded.recipe) == full_recipe(changed.recipe)
    assert (loaded.lr, loaded.batch_size, loaded.seed) == (0.002, 7, 4)
    assert loaded.step.settings.damping == 0.3


def test_known_classes_include_those_that_come_again() -> None:
    """In a stream of domains every task has the same classes; they are known from the second on."""
    learner = Learner(network(0), "ocar", settings={"step.replay_weight": "class_ratio"}, batch_size=10)
    seen: list[tuple[int, ...]] = []
    learner.step.begin = lambda context: seen.append(context.known)  # type: ignore[method-assign]
    learner.learn(data(0))
    learner.learn(data(0))
    assert seen == [(), (0, 1)]
