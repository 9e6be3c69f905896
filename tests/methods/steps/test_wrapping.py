"""Steps around steps: any inner one by name, with its settings, to any depth."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tmln.experiments.config import RunConfig, run_id
from tmln.learner import Learner
from tmln.methods import Closure, TaskContext, read_settings
from tmln.methods.recipes import RECIPES, ComponentSpec, Recipe
from tmln.methods.steps import STEPS
from tmln.methods.steps.a_gem import AGEMStep
from tmln.methods.steps.sam import SAMStep
from tmln.methods.steps.tmln import TMLNStep

WRAPPERS = [name for name, part in STEPS.items() if part.is_wrapper]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


def task(k: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(k)
    y = torch.randint(2, (30,), generator=generator) + 2 * k
    return torch.randn(30, 4, generator=generator) + y[:, None], y


def after(settings: dict[str, Any], step: str) -> torch.Tensor:
    learner = Learner(network(), "er", step=step, settings=settings, batch_size=10)
    for k in range(2):
        learner.learn(task(k), epochs=2)
    return torch.cat([p.detach().flatten() for p in learner.model.parameters()])


def test_there_are_some() -> None:
    assert WRAPPERS == ["a-gem", "sam", "gem", "first-session", "slow-backbone"]


@pytest.mark.parametrize("wrapper", [name for name in WRAPPERS if STEPS[name].off_settings is not None])
@pytest.mark.parametrize("inner", [name for name, step in STEPS.items() if step.changed_settings])
def test_switched_off_it_is_the_inner_step_with_its_settings(wrapper: str, inner: str) -> None:
    off, turned = STEPS[wrapper].off_settings, STEPS[inner].changed_settings
    assert off is not None
    settings = {"step.inner": inner, **{f"step.{key}": value for key, value in off.items()}}
    settings |= {f"step.inner.{key}": value for key, value in turned.items()}
    alone = after({f"step.{key}": value for key, value in turned.items()}, inner)
    assert torch.equal(after(settings, wrapper), alone)
    assert not torch.equal(alone, after({}, inner))


def test_settings_go_in_in_any_order_and_depth() -> None:
    settings = {"inner.inner.damping": 0.7, "inner.inner": "tmln", "inner": "a-gem", "inner.batch": 5, "rho": 0.2}
    step = SAMStep(read_settings(SAMStep, settings), network(), 0.1, 0)
    assert isinstance(step.inner, AGEMStep)
    assert step.inner.settings.batch == 5
    assert isinstance(step.inner.inner, TMLNStep)
    assert step.inner.inner.settings.damping == 0.7
    assert step.optimizer is step.inner.inner.optimizer
    assert step.needs_boundary
    assert step.tracks_path
    assert not SAMStep(read_settings(SAMStep, {}), network(), 0.1, 0).needs_boundary


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"inner": "tlmn"}, "unknown step 'tlmn'; did you mean 'tmln'"),
        (
            {"inner.dampin": 1.0, "inner": "tmln"},
            "^step.inner.dampin: 'tmln' has no setting 'dampin'; did you mean 'damping'",
        ),
        ({"inner": "tmln", "inner.damping": 0}, r"step\.inner\.damping = 0: .*greater than 0"),
        ({"inner.inner": "sgd"}, "'sgd' has no setting 'inner'"),
        ({"iner": "sgd"}, "'sam' has no setting 'iner'; did you mean 'inner'"),
    ],
)
def test_mistakes_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_settings(SAMStep, settings)
    with pytest.raises(ValueError, match="no setting 'strength'"):
        SAMStep.Settings.model_validate({"strength": 1.0})


def test_another_inner_step_drops_the_settings_of_the_one_before() -> None:
    recipe = RECIPES["sam"]
    assert recipe.resolve_settings("step")["inner.momentum"] == 0.9
    assert recipe.with_setting("step.inner", "sgd").resolve_settings("step")["inner.momentum"] == 0.9
    other = recipe.with_settings({"step.inner.damping": 0.3, "step.inner": "tmln"})
    assert other.resolve_settings("step")["inner.damping"] == 0.3
    assert other.resolve_settings("step")["inner.momentum"] == 0.0
    assert other.with_setting("step.inner", "upgd").step.settings == {"inner": "upgd"}


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("method", ["sam", "a-gem"])
def test_a_run_is_itself_when_read_again(method: str, momentum: float) -> None:
    config = RunConfig.of(
        {"benchmark": "split-digits", "method": method, "settings": {"step.inner.momentum": momentum}}
    )
    again = RunConfig.of(config.resolved())
    assert again.resolved() == config.resolved()
    assert run_id(again) == run_id(config)
    assert again.recipe().resolve("step")[1].inside().get("momentum", 0.0) == momentum


def test_a_gem_without_settings_of_its_inner_step_spells_none_out() -> None:
    plain = RunConfig(benchmark="split-digits", method="a-gem")
    assert set(plain.resolved()["settings"]) == {"step.batch", "step.capacity", "step.inner"}
    assert run_id(plain.with_setting("step.inner.momentum", 0.0)) == run_id(plain)
    assert run_id(plain.with_setting("step.inner.momentum", 0.5)) != run_id(plain)


def test_a_gem_draws_its_samples_once_however_often_it_is_asked() -> None:
    """Around sam it projects both gradients, against the same samples."""
    states = []
    for inner in ("sgd", "sam"):
        step = ComponentSpec("a-gem", {"inner": inner, "batch": 4})
        learner = Learner(network(), Recipe(step=step), batch_size=10)
        for k in range(2):
            learner.learn(task(k), epochs=2)
        assert isinstance(learner.step, AGEMStep)
        states.append(learner.step.checks.generator.get_state())
    assert torch.equal(states[0], states[1])


def test_a_wrapper_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one screen: what it does, it does to the closure."""
    from tmln.methods.steps.wrapping import Wrapping, WrappingSettings

    class Halved(Wrapping[WrappingSettings]):
        """Half the gradient."""

        name = "halved"
        Settings = WrappingSettings
        modifies_gradient = True

        def step(self, closure: Closure, context: TaskContext) -> None:
            def half() -> float:
                value = closure()
                torch._foreach_mul_([p.grad for p in context.model.parameters() if p.grad is not None], 0.5)
                return value

            self.inner.step(half, context)

    monkeypatch.setitem(STEPS, "halved", Halved)
    learners = [
        Learner(network(), "naive", step="halved", lr=0.02, batch_size=30),
        Learner(network(), "naive", step="sgd", settings={"step.momentum": 0.0}, lr=0.01, batch_size=30),
    ]
    for learner in learners:
        learner.learn(task(0), epochs=3)
    for a, b in zip(learners[0].model.parameters(), learners[1].model.parameters(), strict=True):
        torch.testing.assert_close(a, b)
