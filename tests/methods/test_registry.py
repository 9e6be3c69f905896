"""A family is one line: what reads the table of families finds it, and runs from before keep their names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tmln.experiments.config import RunConfig, run_id
from tmln.learner import Learner
from tmln.methods import Answer, Penalty, Replay, Step, Weights
from tmln.methods.recipes import RECIPES, ComponentSpec, Recipe
from tmln.methods.registry import FAMILIES

# Taken before there were families as a table, and steps with a closure; those of der++ when its defaults were changed.
NAMES = {
    "naive": "5bdf7423260b4904", "joint": "fd9c7245eb68dddc", "independent": "d186234081bff0ff",
    "er": "0ea26300b7e2d9b5", "ewc++": "72451c426679c6b1", "rwalk": "601d7cc91bbefbd1", "upgd": "3aa4983f96b784bb",
    "ocar": "f6dcfbce311d4a6c", "tmln": "ccbc93dc5b361432", "tmln-static": "a6f51270fddd6e39",
    "tmln-euclidean": "87033f8433b686a1", "der++": "534d657fc31853fc", "er-ace": "110ef6b290cb2ef4",
    "ewc": "d169cea597ce2617", "si": "653d59ac0cae7444", "mas": "754fb2d4e768cfdc", "lwf": "03100a0ae5017b65",
    "a-gem": "5d9cb66faa7aab5e", "tmln+der++": "111cca33bdc0154f", "tmln+er-ace": "84ac22a6edb4cbc9",
}  # fmt: skip
CHANGED: list[tuple[dict[str, object], str]] = [
    ({"replay": "der++"}, "6802351997b26dde"),
    ({"replay": "der++", "replay.alpha": 0.1, "replay.beta": 0.5}, "001a5e4085926004"),  # once its defaults
    ({"penalty": "ewc", "penalty.strength": 3.0}, "bfd919855f6c7451"),
    ({"step": "a-gem", "step.inner": "tmln"}, "46a331c36d788700"),
    ({"step": "a-gem", "step.batch": 7}, "25ef7690f7eb6329"),
    ({"step.damping": 0.2, "logit_mask": "seen"}, "4d7f28d19bd637bb"),
]


@pytest.mark.parametrize("method", NAMES)
def test_runs_keep_their_names(method: str) -> None:
    name = run_id(RunConfig(benchmark="split-digits", method=method, seed=3))
    assert name == f"split-digits-{method}-s3-{NAMES[method]}"


@pytest.mark.parametrize(("changes", "digest"), CHANGED)
def test_changed_runs_keep_their_names(changes: dict[str, object], digest: str) -> None:
    config = RunConfig(benchmark="split-digits", method="tmln").with_settings(changes)
    assert run_id(config) == f"split-digits-tmln-s0-{digest}"


def test_each_knows_its_name_its_question_and_its_default() -> None:
    assert [family.base for family in FAMILIES.values()] == [Replay, Penalty, Step, Weights, Answer]
    assert [family.name for family in FAMILIES.values()] == list(FAMILIES)
    assert [FAMILIES.default(name) for name in FAMILIES] == ["none", "none", "sgd", "last", "argmax"]
    assert all(family.question.endswith("?") for family in FAMILIES.values())
    assert "mood" not in FAMILIES


def test_a_recipe_goes_through_plain_containers_and_back() -> None:
    for recipe in RECIPES.values():
        plain = recipe.to_dict()
        assert Recipe.from_dict(plain) == recipe
        del plain["penalty"]  # saved before there was this family
        assert Recipe.from_dict(plain) == Recipe.from_dict(
            {**recipe.to_dict(), "penalty": {"name": "none", "settings": {}}}
        )
    assert Recipe(step=ComponentSpec("tmln")) != Recipe()
    with pytest.raises(TypeError, match="a recipe has no 'stpe'; did you mean 'step'"):
        Recipe(stpe=ComponentSpec("sgd"))
    with pytest.raises(AttributeError, match="a recipe has no 'stpe'"):
        _ = Recipe().stpe


def test_a_learner_takes_no_other_arguments() -> None:
    import torch

    with pytest.raises(TypeError, match="no argument 'repaly'; did you mean 'replay'"):
        Learner(torch.nn.Linear(2, 2), repaly="er")
    with pytest.raises(TypeError, match="no argument 'batchsize'; did you mean 'batch_size'"):
        Learner(torch.nn.Linear(2, 2), batchsize="3")


ANOTHER = '''
import sys, types
import torch
from tmln.methods import registry as families
from tmln.methods import BuildContext, Component, Family, MemoryTerm, Settings

class Mood(Component[Settings]):
    """How does it feel?"""
    family = "mood"
    state_names = ("told",)
    def __init__(self): self.told = 0
    @classmethod
    def make(cls, settings, given): return cls()
    @classmethod
    def memory_terms(cls, settings, beside): return []
    def end(self, context): self.told += 1

class Calm(Mood):
    """Calm."""
    name = "calm"
    off_settings = {}

class Keen(Mood):
    """Keen."""
    name = "keen"

sys.modules["moods"] = types.ModuleType("moods")
sys.modules["moods"].MOODS = Family(Mood, Calm, Keen)
families.TABLES["mood"] = ("moods", "MOODS", "calm")  # the one line

from typer.testing import CliRunner
from tmln.cli.app import app
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.build import build
from tmln.learner import Learner

plain = RunConfig(benchmark="split-digits", method="naive", seed=3)
assert run_id(plain).endswith("5bdf7423260b4904"), "a default of a later family is not spelled out"
keen = RunConfig.of({"benchmark": "split-digits", "method": "naive", "seed": 3, "mood": "keen"})
assert run_id(keen) != run_id(plain)
assert RunConfig.from_yaml(keen.to_yaml()).resolved() == keen.resolved()
assert run_id(plain.with_setting("mood", "keen")) == run_id(keen)
x, y = torch.randn(20, 4), torch.arange(20) % 2
learner = Learner(torch.nn.Linear(4, 2), "er", mood="keen", batch_size=5)
learner.learn((x, y))
assert (learner.mood.name, learner.mood.told, len(learner.trained.components)) == ("keen", 1, 6)
learner.save(sys.argv[1])
again = Learner.load(sys.argv[1], torch.nn.Linear(4, 2))
assert again.mood.told == 1
old = learner.state_dict()
del old["parts"]["mood"]
try:
    again.load_state_dict(old)
except ValueError as error:
    assert "nothing of mood 'keen'" in str(error)
else:
    raise AssertionError
help_text = CliRunner().invoke(app, ["run", "--help"]).output
assert "--mood" in help_text
listed = CliRunner().invoke(app, ["list", "parts"]).output
assert "How does it feel?" in listed and "mood keen" in listed
assert "mood" in CliRunner().invoke(app, ["list", "components"]).output
assert build(keen)[1].mood.name == "keen"
'''


@pytest.mark.slow
def test_another_family_is_one_line(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", ANOTHER, str(tmp_path / "state.tmln")], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
