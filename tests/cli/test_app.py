"""The command line as a person meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tmln
from tests.cli.typed import typed
from tmln.cli import app
from tmln.cli.app import COMMANDS as PANELS
from tmln.cli.command import RENAMED
from tmln.cli.execution import choose_reference
from tmln.experiments.config import RunConfig
from tmln.methods.recipes import FAMILIES, RECIPES
from tmln.streams import BENCHMARKS
from tmln.streams.options import describe_options


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "250"})
    assert result.exit_code == 0, result.output
    return result.output


def test_help_teaches() -> None:
    text = run("--help")
    for command in ("demo", "run", "compare", "show", "list", "data"):
        assert command in text


def test_everything_is_listed() -> None:
    methods = run("list", "methods")
    assert all(name in methods for name in RECIPES)
    components = run("list", "components")
    assert all(f"{family} {name}" in components for family, table in FAMILIES.items() for name in table)
    assert "step.damping" in components
    benchmarks = run("list", "benchmarks")
    for name, row in BENCHMARKS.items():
        (line,) = (line for line in benchmarks.splitlines() if line.split()[0] == name)
        assert row.summary in line
        one = run("list", "benchmarks", {"folder": "folder:photos", "own": "own:memory"}.get(name, name))
        assert f"{row.model} " in one
        for option in describe_options(row.options):
            assert f"benchmark.{option.name} " in one
            assert option.about in one
    assert "resnet18" in run("list", "models")


@pytest.mark.parametrize("command", ["run", "compare", "sweep", "tune", "overhead", "landscape", "barrier"])
def test_help_says_where_options_of_benchmarks_are(command: str) -> None:
    text = " ".join(run(command, "--help").split())
    assert "benchmark.tasks=5" in text
    assert "tmln list benchmarks" in text


@pytest.mark.parametrize("words", [["run", "--help"], ["list", "benchmarks"], ["data", "list"]])
def test_what_only_tells_needs_no_torch(words: list[str]) -> None:
    code = (
        f"import sys; from tmln.cli import app; app({words}, standalone_mode=False); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_data_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMLN_DATA", str(tmp_path))
    text = run("data", "list")
    assert "cifar" in text
    assert str(tmp_path) in text.replace("\n", "")


def process(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tmln", *words], capture_output=True, text=True, check=False)


def test_an_error_is_one_line_with_a_remedy() -> None:
    wrong = process("data", "check", "cifar11")
    assert wrong.returncode == 2
    assert len(wrong.stderr.strip().splitlines()) == 1
    assert "did you mean 'cifar1" in wrong.stderr
    debug = process("--debug", "data", "check", "cifar11")
    assert "Traceback" in debug.stderr
    assert process("lst").returncode == 2


def test_compare_show_and_once_more(tmp_path: Path) -> None:
    words = ["compare", "--benchmark", "split-digits", "--methods", "naive,tmln", "--seeds", "2", "--epochs", "2"]
    words += ["--set", "benchmark.per_class=24", "--set", "benchmark.per_class_test=10", "--runs", str(tmp_path)]
    # processes of their own, from a command line, are tests/experiments/test_interrupted.py's
    words += ["--executor", "serial"]
    first = run(*words)
    for word in ("naive", "tmln", "ACC", "FM", "INT", "±", "paired t-test"):
        assert word in first
    assert "6 runs were done before" in run(*words)
    shown = run("show", str(tmp_path))
    assert "joint" in shown
    assert json.loads(run("show", str(tmp_path), "--format", "json"))
    assert "| tmln" in run("show", str(tmp_path), "--format", "md")
    dry = run(*words, "--dry-run")
    assert "benchmark: split-digits" in dry
    assert "# 6 runs: 6 finished, 0 begun, 0 not begun; 2 of them as references for INT" in dry


def test_a_runs_own_config_reproduces_it(tmp_path: Path) -> None:
    few = ["--set", "benchmark.per_class=24", "--set", "benchmark.per_class_test=10", "--epochs", "1"]
    words = [
        "run",
        "--benchmark",
        "split-digits",
        *few,
        "--set",
        "seed=3",
        "--int-reference",
        "none",
        "--runs",
        str(tmp_path),
    ]
    assert "seed 3" in run(*words)
    (config,) = tmp_path.glob("*/config.yaml")
    again = run("run", "--config", str(config), "--int-reference", "none", "--runs", str(tmp_path))
    assert "seed 3: done before" in again


COMMANDS = {
    "demo": [],
    "run": [],
    "compare": ["--methods", "--workers"],
    "sweep": ["--grid", "--workers"],
    "tune": ["--trials"],
    "paper": ["--scale", "--threads"],
    "show": [],
    "report": [],
    "pareto": [],
    "overhead": [],
    "landscape": [],
    "barrier": [],
    "list": [],
    "data list": [],
    "data get": [],
    "data check": [],
}
SHARED = ["--runs", "--checkpoint-steps", "--logger", "--executor", "--workers", "--threads", "--gpus", "--retries"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_commands_help_has_an_example_that_is_right(name: str) -> None:
    text = run(*name.split(), "--help")
    example = text.partition("Example:")[2].strip().partition("\n")[0]
    assert example.startswith(f"tmln {name}")
    assert all(option in text for option in COMMANDS[name])
    if name in ("run", "compare", "sweep", "tune", "paper"):
        assert all(option in text for option in SHARED)
    options = [word for word in example.split() if word.startswith("-")]
    assert all(option in text for option in options)


def test_the_list_of_commands_cuts_nothing() -> None:
    text = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    assert all(f"{panel}:" in text for panel in (*PANELS, "Data and lists"))
    for words in ([], ["data"]):
        assert "..." not in CliRunner().invoke(app, [*words, "--help"]).output.replace("[ARGS]...", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--benchmark", "split-digit"], "did you mean 'split-digits'"),
        (["run"], "which benchmark"),
        (["run", "--benchmark", "split-digits", "--method", "tlmn"], "did you mean 'tmln'"),
        (["run", "--benchmark", "split-digits", "--set", "step.damping"], "KEY=VALUE"),
        (["run", "--benchmark", "split-digits", "--set", "step.damping=-1"], "greater than 0"),
        (["run", "--benchmark", "core50", "--set", "size=32"], "unknown setting 'size'; did you mean 'benchmark.size'"),
        (["run", "--benchmark", "split-digits", "--set", "benchmark.foo=1"], "(it takes tasks, per_class, "),
        (["list", "benchmarks", "split-digit"], "did you mean 'split-digits'"),
        (["list", "models", "mlp"], "a name is for benchmarks"),
        (["show", "nowhere"], "no folder nowhere"),
    ],
)
def test_mistakes_are_answered(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code != 0
    assert said in str(result.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seed", "3"], "there is no --seed: write --set seed=3 for one seed, --seeds 3 for the first three"),
        (["--learning-rate=0.1"], "write --set lr=0.01"),
        (["learning_rate=0.1"], "settings are given by --set: --set lr=0.01"),
        (["--set", "learning_rate=0.1"], "did you mean 'lr'"),
        (["--set", "tmln.damping=1"], "did you mean 'step.damping'"),
        (["--set", "step.damping=-1"], "step.damping = -1: "),
        (["--set", "optimizer=adam"], "did you mean 'step'"),
    ],
)
def test_words_of_other_tools_get_ours(words: list[str], said: str) -> None:
    result = typed("run", "--benchmark", "split-digits", *words)
    assert result.returncode == 2
    assert said in result.stderr


@pytest.mark.parametrize("command", ["run", "tune"])
def test_missing_data_are_told_before_anything_is_made(command: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    result = typed(command, "--benchmark", "split-cifar10", "--runs", str(runs), TMLN_DATA=str(tmp_path))
    assert result.returncode == 2
    assert f"cifar10 is not under {tmp_path}" in result.stderr.splitlines()[-1]
    assert not runs.exists()
    result = typed(command, "--benchmark", "folder:nowhere", "--runs", str(runs))
    assert "there is no nowhere" in result.stderr
    assert not runs.exists()


@pytest.mark.parametrize(
    ("missing", "words", "extra"),
    [
        ("optuna", ["tune", "--benchmark", "split-digits", "--trials", "1"], "tmln[tune]"),
        ("matplotlib", ["pareto", "RUNS", "-o", "p.png"], "tmln[figures]"),
        ("matplotlib", ["overhead", "--benchmark", "split-digits", "-o", "p.png"], "tmln[figures]"),
        ("matplotlib", ["landscape", "--benchmark", "split-digits", "--methods", "er"], "tmln[figures]"),
    ],
)
def test_a_missing_extra_is_named_at_once(
    missing: str, words: list[str], extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    runs = tmp_path / "runs"
    words = [str(tmp_path) if word == "RUNS" else word for word in words]
    result = typed(*words, *([] if words[0] == "pareto" else ["--runs", str(runs)]))
    assert extra in result.stderr
    assert result.returncode == 2
    assert not runs.exists()


def test_importing_the_package_imports_little() -> None:
    code = "import sys, tmln; print(sorted(m for m in ('torch', 'numpy', 'pydantic', 'rich') if m in sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
    code = "import sys, tmln; tmln.TMLN; print(sorted(m for m in ('pydantic', 'rich', 'typer') if m in sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_public_names_are_there() -> None:
    for name in tmln.__all__:
        assert getattr(tmln, name) is not None
    assert tmln.metrics.average_accuracy([[1.0]]) == 1.0
    assert {tmln.optim.UPGD, tmln.optim.OCAR, tmln.optim.TMLN} > {tmln.TMLN}
    with pytest.raises(AttributeError, match="no attribute 'TLMN'"):
        _ = tmln.TLMN  # type: ignore[attr-defined]


def test_the_version_is_shown() -> None:
    assert run("--version").split() == ["tmln", tmln.__version__]


def test_help_of_run_fits_a_screen() -> None:
    """At 80 columns, with every option; benchmarks' own options are listed elsewhere."""
    text = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "80"}).output
    assert len(text.splitlines()) <= 62
    assert max(len(line) for line in text.splitlines() if "tmln run" not in line) <= 80


FEW_RUN = ["run", "--benchmark", "split-digits", "--epochs", "1", "--int-reference", "none"]


@pytest.mark.parametrize("words", [["--device", "nowhere", *FEW_RUN], [*FEW_RUN, "--device", "nowhere"]])
def test_the_device_is_given_before_or_after_the_command(words: list[str], tmp_path: Path) -> None:
    done = typed(*words, "--runs", str(tmp_path), TMLN_DEVICE="cpu")
    assert done.returncode != 0
    assert "nowhere" in done.stderr


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_spelling_still_works_and_warns(old: str, new: str) -> None:
    """Wherever the new one is an option and the old one is not."""
    found = 0
    for commands in PANELS.values():
        for command in commands:
            text = run(command.__name__, "--help").split()
            if new not in text or old in text:
                continue
            found += 1
            flag = ["yes"] if new != "--with-trials" else []
            done = CliRunner().invoke(app, [command.__name__, old, *flag, "--no-such-option"])
            assert f"{old} is now {new}" in done.output
            assert f"No such option: {old}" not in done.output
    assert found


def test_completion_knows_commands_methods_and_benchmarks() -> None:
    def complete(line: str) -> str:
        words = {"_TMLN_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        return CliRunner().invoke(app, [], env=words, prog_name="tmln").output

    assert complete("tmln ver").split() == ["verify"]
    assert "--device" in complete("tmln run --dev")
    assert "tmln-kfac" in complete("tmln run --method tmln-k")
    assert "split-cifar100" in complete("tmln run --benchmark split-c")


def test_a_pretrained_network_has_a_joint_reference_where_one_is_asked_for() -> None:
    plain = RunConfig(benchmark="split-cifar100", method="er")
    scratch = plain.with_settings({"model": "efficientnet-lite0", "model.pretrained": False})
    backbone = plain.with_settings({"model": "efficientnet-lite0", "method": "slda"})
    assert choose_reference([plain, scratch], None) == "prefix"
    assert choose_reference([backbone], None) == "none"
    assert choose_reference([RunConfig(benchmark="split-cub200", method="er")], None) == "none"  # by the benchmark
    assert choose_reference([backbone], "final") == "final"
    assert choose_reference([plain], "none") == "none"
