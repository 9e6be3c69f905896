"""What is observed on the way is asked for by options, and what a finished run cannot have any more is said."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from tmln.cli import app

SMALL = ["--benchmark", "split-digits", "--epochs", "1"]
SMALL += ["--set", "benchmark.tasks=2", "--set", "benchmark.per_class=16"]


def test_options_of_what_is_observed(tmp_path: Path) -> None:
    words = ["run", *SMALL, "--method", "er", "--int-reference", "none", "--logger", "none", "--runs", str(tmp_path)]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    assert "min-ACC" not in first.output
    asked = ["--eval-every", "2", "--keep", "predictions"]
    again = CliRunner().invoke(app, [*words, *asked])
    assert (
        "1 of 1 runs have no tests within tasks (--eval-every); 1 of 1 runs have no predictions (--keep)"
        in again.output
    )
    anew = CliRunner().invoke(app, [*words[:-1], str(tmp_path / "anew"), *asked])
    assert "min-ACC" in anew.output
    assert "not run again" not in anew.output
    (run,) = (tmp_path / "anew").glob("split-*")
    assert (run / "predictions.safetensors").exists()


def test_what_cannot_be_kept_is_said(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", *SMALL, "--keep", "prediction", "--runs", str(tmp_path)])
    assert isinstance(done.exception, ValueError)
    assert str(done.exception) == "--keep takes predictions, not 'prediction'; did you mean 'predictions'?"
