"""A stranger's part, one file and one line: it goes through run, show, report and resume like those that ship."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from tests import test_every_component as every_component
from tests.cli.typed import typed
from tests.toys import LastReplay, LeashPenalty, ShyAnswer, SignStep, StartWeights
from tests.warm import Warm
from tmln.cli.app import app
from tmln.experiments.build import build
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.launch import RunOptions
from tmln.experiments.result import Result
from tmln.experiments.run import Execution
from tmln.experiments.store import Store
from tmln.learner import Learner
from tmln.measure.memory_cost import format_terms
from tmln.methods.recipes import FAMILIES, Recipe
from tmln.testing import check_component
from tmln.tuning.space import declared_spaces

TOYS: dict[str, Any] = {"replay": LastReplay, "penalty": LeashPenalty, "step": SignStep, "weights": StartWeights}
TOYS["answer"] = ShyAnswer
LISTED = {family: part.name for family, part in TOYS.items()}  # names where the part is in its table
CODE = {family: f"tests.toys:{part.__name__}" for family, part in TOYS.items()}  # and where it is not
SMALL: dict[str, Any] = {"benchmark": "split-digits", "method": "naive", "epochs": 2}
SMALL |= {"benchmark_options": {"per_class": 24, "per_class_test": 10}}
ROOT = Path(__file__).parents[1]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line."""
    for family, part in TOYS.items():
        monkeypatch.setitem(FAMILIES[family], part.name, part)


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMLN_ALLOW_CODE", "1")


def configs(names: dict[str, str]) -> dict[str, RunConfig]:
    """Each toy alone, all together, and the step within another."""
    found = {family: RunConfig.of({**SMALL, family: name}) for family, name in names.items()}
    found["all"] = RunConfig.of({**SMALL, **names, "settings": {"penalty.strength": 0.5}})
    wrapped = {"step.inner": names["step"], "step.inner.share": 0.5}
    found["within"] = RunConfig.of({**SMALL, "step": "sam", "settings": wrapped})
    return found


def finish(root: Path, config: RunConfig) -> Result:
    run = Store(root).open(config)
    with run.lock:
        return Execution(run, RunOptions(checkpoint_steps=4))()


def said(*words: str) -> str:
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


KILLED = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
from tests.test_own_components import TOYS, configs
from tmln.experiments.run import Execution
from tmln.experiments.launch import RunOptions
from tmln.experiments.store import Store
from tmln.methods.recipes import FAMILIES

for family, part in TOYS.items():
    FAMILIES[family][part.name] = part

def step(moment):
    if moment.step == 17:
        os.kill(os.getpid(), signal.SIGKILL)

for case, config in configs({family: part.name for family, part in TOYS.items()}).items():
    child = os.fork()
    if not child:
        run = Store(sys.argv[1] + "/" + case).open(config)
        with run.lock:
            Execution(run, RunOptions(checkpoint_steps=4), on_step=step)()
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each case, where it was killed; one process for all, which knows the toys."""
    root = tmp_path_factory.mktemp("killed")
    with Warm([sys.executable, "-c", KILLED, str(root)], cwd=ROOT) as process:
        assert process.wait() == 0
    return root


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return finish(tmp_path_factory.mktemp("plain"), RunConfig.of(SMALL))


@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize("case", [*TOYS, "all", "within"])
def test_run_show_report_killed_and_resumed(case: str, tmp_path: Path, killed: Path, plain: Result) -> None:
    config = configs(LISTED)[case]
    whole = finish(tmp_path / "runs", config)
    assert not whole.diverged
    assert "naive" in said("show", str(tmp_path / "runs"))
    said("report", str(tmp_path / "runs"), "-o", str(tmp_path / "page.html"))
    names = [name for name in LISTED.values() if name in config.to_yaml()]
    assert names
    assert all(name in (tmp_path / "page.html").read_text(encoding="utf-8") for name in names)
    run = Store(killed / case).open(config)
    assert not run.finished
    assert list(run.checkpoints.glob("*"))
    again = finish(killed / case, config)
    assert again.weights_sha256 == whole.weights_sha256
    assert again.accuracy == whole.accuracy
    assert (plain.weights_sha256 == whole.weights_sha256) == (case == "answer")
    if case == "answer":
        assert plain.accuracy != whole.accuracy


@pytest.mark.usefixtures("listed")
def test_tables_help_and_search_find_it() -> None:
    parts = said("list", "components")
    for family, part in TOYS.items():
        assert f"{family} {part.name}" in parts
        assert any(key.startswith(f"{family}.") for key in declared_spaces(configs(LISTED)[family]))
    assert (
        format_terms(
            Recipe().with_component("step", "toy-step").with_component("penalty", "toy-penalty").memory_terms() or []
        )
        == "2N"
    )
    assert format_terms(configs(LISTED)["all"].recipe().memory_terms() or []) == "3N + 8 samples"


@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize("family", TOYS)
def test_the_walks_over_every_component_hold_for_it(family: str) -> None:
    """Those that a new row of the table would be put through, by what it declares of itself."""
    name = LISTED[family]
    check_component(TOYS[family])
    plain = {other: FAMILIES.default(other) for other in FAMILIES}
    every_component.assert_all_components_are_felt({**plain, family: name})
    every_component.assert_all_components_are_felt(LISTED)


# -- package.module:Class ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("listed", "allowed")
@pytest.mark.parametrize("case", [*TOYS, "all", "within"])
def test_named_as_code_it_is_the_same_part(case: str, tmp_path: Path) -> None:
    code, named = configs(CODE)[case], configs(LISTED)[case]
    assert code.resolved()["settings"].keys() == named.resolved()["settings"].keys()
    assert finish(tmp_path, code).weights_sha256 == finish(tmp_path, named).weights_sha256
    again = RunConfig.from_yaml(code.to_yaml())
    assert run_id(again) == run_id(code) != run_id(named)


def test_a_program_names_code_as_it_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMLN_ALLOW_CODE", raising=False)
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    learner = Learner(model, "naive", **CODE, settings={"penalty.strength": 0.3}, batch_size=8)  # type: ignore[arg-type]
    assert [type(part) for part in tuple(learner.components.values())] == list(TOYS.values())
    assert learner.penalty.settings.strength == 0.3
    learner.learn((torch.randn(32, 4), torch.arange(32) % 4))
    learner.save(tmp_path / "own.tmln")
    with pytest.raises(ValueError, match=r"'tests\.toys:LastReplay' is code outside tmln"):
        Learner.load(tmp_path / "own.tmln", model)  # a file is somebody's text
    again = Learner.load(tmp_path / "own.tmln", model, allow_code=True)
    assert [type(part) for part in tuple(again.components.values())] == list(TOYS.values())
    with pytest.raises(ValueError, match="'toy-penalty' has no setting 'strenght'"):
        Learner(model, "naive", penalty=CODE["penalty"], settings={"penalty.strenght": 1.0})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tests.toys:Bystander", "'tests.toys:Bystander' is not a subclass of tmln.methods.Penalty"),
        ("tests.toys:SignStep", "is not a subclass of tmln.methods.Penalty"),
        ("tests.toys:unused", "is not a subclass of tmln.methods.Penalty"),
        ("tests.toys:Missing", "tests.toys has no 'Missing'"),
        ("tests.nowhere:Missing", "no module 'tests.nowhere'; set PYTHONPATH"),
        ("toys", "unknown penalty 'toys'.*a component of your own is package.module:Class"),
    ],
)
def test_mistakes_are_named(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Learner(nn.Linear(4, 4), "naive", penalty=name)


def test_nothing_is_imported_that_nobody_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration is somebody's text: neither reading it, nor showing a run of it, imports what it names."""
    monkeypatch.delenv("TMLN_ALLOW_CODE", raising=False)
    imported: list[str] = []
    real = importlib.import_module

    def note(name: str, package: str | None = None) -> Any:
        imported.append(name)
        return real(name, package)

    monkeypatch.setattr("tmln.user_code.importlib.import_module", note)
    hostile = [{**SMALL, family: "antigravity:Anything"} for family in FAMILIES]
    hostile += [{**SMALL, "step": "sam", "settings": {"step.inner": "antigravity:Anything", "step.inner.x": 1}}]
    nested = {"step.inner": "a-gem", "step.inner.inner": "antigravity:Anything"}
    hostile += [{**SMALL, "step": "sam", "settings": nested}]
    for values in hostile:
        config = RunConfig.of(values)
        assert RunConfig.from_yaml(config.to_yaml()).resolved() == config.resolved()
        with pytest.raises(ValueError, match=r"'antigravity:Anything' is code outside tmln.*tmln --allow-code"):
            build(config)
        Store(tmp_path).open(config)
    finish(tmp_path, RunConfig.of(SMALL))
    said("show", str(tmp_path))
    said("report", str(tmp_path), "-o", str(tmp_path / "page.html"))
    assert "antigravity" not in imported
    assert "antigravity" not in sys.modules


def test_the_command_line_asks_and_is_told(tmp_path: Path) -> None:
    words = ["run", "--benchmark", "split-digits", "--method", "naive", "--epochs", "1", "--int-reference", "none"]
    words += ["--set", "benchmark.per_class=12", "--runs", str(tmp_path), "--logger", "none"]
    words += [word for family, name in CODE.items() for word in (f"--{family}", name)]
    refused = typed(*words)
    assert refused.returncode == 2
    assert "is code outside tmln" in refused.stderr
    done = typed("--allow-code", *words)
    assert done.returncode == 0, done.stderr
    (entry,) = Store(tmp_path).runs()
    assert entry.path.is_dir()
    text = (entry.path / "config.yaml").read_text(encoding="utf-8")
    assert all(f"{family}: {name}" in text for family, name in CODE.items())
    assert "naive" in said("show", str(tmp_path))  # without leave: what is stored needs no code
