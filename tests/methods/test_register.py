"""Methods of one's own: registered by a program or an installed package, and components given as classes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import tmln
from tests.toys import LastReplay, LeashPenalty, SignStep
from tmln.cli.app import app
from tmln.experiments.config import RunConfig, run_id
from tmln.learner import Learner
from tmln.methods import recipes
from tmln.methods.recipes import GIVEN, RECIPES, ComponentSpec, Recipe, find_recipe, register
from tmln.methods.replay.er import ER
from tmln.tuning.sweep import spaces_of
from tmln.user_code import TRUSTED

PACKAGE = '''
from pydantic import Field
from tmln.methods import Penalty, Settings


class HoldSettings(Settings):
    strength: float = Field(0.1, ge=0, description="a", json_schema_extra={"search": {"low": 0.01, "high": 1.0}})


class Hold(Penalty[HoldSettings]):
    """Nothing at all."""

    name = "hold"
    Settings = HoldSettings
'''
RECIPE = """
from tmln.methods.recipes import ComponentSpec, Recipe

HELD = Recipe(replay=ComponentSpec("er"), penalty=ComponentSpec("held.parts:Hold"), about="er, held")


def make():
    return HELD


WRONG = 3
"""
METADATA = "Metadata-Version: 2.1\nName: held\nVersion: 1.0\n"


@pytest.fixture(autouse=True)
def _leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registered methods and trusted code are of this test alone."""
    monkeypatch.delenv("TMLN_ALLOW_CODE", raising=False)
    for variable in (GIVEN, TRUSTED):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    before = set(RECIPES)
    yield
    for name in set(RECIPES) - before:
        if name in RECIPES._own:
            del RECIPES[name]
    os.environ.pop(GIVEN, None)
    os.environ.pop(TRUSTED, None)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A tiny package with methods among its entry points, as pip installs one."""
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "__init__.py").write_text(RECIPE)
    (tmp_path / "held" / "parts.py").write_text(PACKAGE)
    about = tmp_path / "held-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(METADATA)
    entries = "held = held:HELD\nheld-made = held:make\nheld-wrong = held:WRONG\nheld-gone = held_gone:HELD\n"
    (about / "entry_points.txt").write_text(f"[tmln.methods]\n{entries}")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    RECIPES.find_installed_again()
    yield tmp_path
    monkeypatch.undo()
    for name in ("held", "held.parts"):
        sys.modules.pop(name, None)
    for name in ("held", "held-made"):
        RECIPES._own.pop(name, None)
    RECIPES.find_installed_again()


@pytest.mark.usefixtures("installed")
def test_an_installed_packages_methods_are_everywhere() -> None:
    assert {"held", "held-made"} <= set(RECIPES)
    assert find_recipe("held") == find_recipe("held-made")
    listed = CliRunner().invoke(app, ["list", "methods"], env={"COLUMNS": "250"})
    assert listed.exit_code == 0, listed.output
    assert "penalty held.parts:Hold" in listed.output
    assert "er, held" in listed.output
    config = RunConfig(benchmark="split-digits", method="held")
    assert "penalty.strength" in spaces_of(config, None)
    config.recipe().check_code()  # who installs a package allows its methods
    assert RunConfig.from_yaml(config.to_yaml()).resolved() == config.resolved()
    model = nn.Linear(4, 4)
    assert type(Learner(model, "held").penalty).__name__ == "Hold"


@pytest.mark.usefixtures("installed")
def test_a_package_that_is_broken_breaks_its_own_methods_alone() -> None:
    assert "held-gone" in RECIPES
    with pytest.raises(ValueError, match=r"method 'held-gone' .* cannot be loaded: ModuleNotFoundError"):
        find_recipe("held-gone")
    with pytest.raises(ValueError, match=r"method 'held-wrong' .* is no .*Recipe but int"):
        find_recipe("held-wrong")
    listed = CliRunner().invoke(app, ["list", "methods"], env={"COLUMNS": "250"})
    assert listed.exit_code == 0
    assert "cannot be loaded" in listed.output
    assert find_recipe("er").replay.name == "er"


def test_a_program_registers_a_method() -> None:
    found = register("mine", "er", penalty=LeashPenalty, settings={"penalty.strength": 0.3}, about="held")
    assert found.penalty == ComponentSpec("tests.toys:LeashPenalty", {"strength": 0.3})
    assert found.step == find_recipe("er").step
    assert RECIPES["mine"] is found
    assert tmln.recipes.register is recipes.register
    config = RunConfig(benchmark="split-digits", method="mine")
    config.recipe().check_code()
    assert config.resolved()["settings"]["penalty.strength"] == 0.3
    assert register("mine", "naive", about="again").replay.name == "none"  # the last one counts


def test_worker_processes_know_it_by_their_environment() -> None:
    found = register("mine", replay=LastReplay)
    del RECIPES["mine"]  # as in a process that was started after
    assert "mine" in RECIPES
    assert find_recipe("mine") == found


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("er", {}, "there is a method 'er' already"),
        ("a b", {}, "a method's name has no space"),
        ("", {}, "a method's name"),
        ("mine", {"replay": "err"}, "unknown replay 'err'; did you mean 'er'"),
        ("mine", {"replay": LeashPenalty}, "is not a subclass of tmln.methods.Replay"),
        ("mine", {"replay": int}, "builtins.int is no component"),
        ("mine", {"recipe": "err"}, "unknown method 'err'"),
        ("mine", {"recipe": Recipe(joint=True)}, "learns every task afresh"),
        ("mine", {"settings": {"step.moment": 1}}, "did you mean 'momentum'"),
    ],
)
def test_mistakes_are_named(name: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        register(name, **more)
    assert name in ("er",) or name not in RECIPES


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(TypeError, match="a method has no 'replai'; did you mean 'replay'"):
        register("mine", replai="er")


def test_classes_are_accepted_wherever_names_are() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(32, 4), torch.arange(32) % 4

    def weights(**components: Any) -> torch.Tensor:
        torch.manual_seed(0)
        learner = Learner(nn.Linear(4, 4), "naive", batch_size=8, **components)
        learner.learn((x, y))
        return torch.cat([p.detach().flatten() for p in learner.model.parameters()])

    by_name = weights(replay="tests.toys:LastReplay", step="tests.toys:SignStep")
    assert torch.equal(weights(replay=LastReplay, step=SignStep), by_name)
    assert Recipe(replay=ComponentSpec(ER)).replay.name == "er"  # type: ignore[arg-type]
    config = RunConfig.of({"benchmark": "split-digits", "method": "naive", "replay": LastReplay})
    named = RunConfig.of({"benchmark": "split-digits", "method": "naive", "replay": "tests.toys:LastReplay"})
    assert run_id(config) == run_id(named)
    assert config.with_setting("step", "sam").with_setting("step.inner", SignStep).settings == {
        "step.inner": "tests.toys:SignStep"
    }


def test_a_class_within_a_function_works_in_this_process() -> None:
    class Local(LastReplay):
        """The batch before joins the next one, too."""

    learner = Learner(nn.Linear(4, 4), "naive", replay=Local)
    assert type(learner.replay) is Local
