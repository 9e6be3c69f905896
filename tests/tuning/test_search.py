"""The search: its means, its front, going on where it was, and what it says of a database that is not there."""

from __future__ import annotations

import math
import re
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tmln.cli import app
from tmln.experiments.config import RunConfig
from tmln.experiments.result import Result
from tmln.tuning import search as searches
from tmln.tuning.search import OWNER, Search, Trial, average_objectives, database_errors, open_study
from tmln.tuning.space import Choices, Range, Space

BASE = RunConfig(benchmark="split-digits", method="tmln")
SPACES: dict[str, Space] = {
    "step.damping": Range(1e-3, 10, log=True),
    "replay.capacity": Range(1, 100, whole=True),
    "step.geometry": Choices(("fisher", "euclidean")),
}
BOTH = {"fm": False, "int": False}
Results = list[list[Result | None]]


def search(root: Path, **options: Any) -> Search:
    objectives = options.pop("objectives", BOTH)
    return Search(BASE, SPACES, objectives, f"sqlite:///{root / 'tune.db'}", **options)


def pretend(trials: Sequence[Trial]) -> Results:
    """Forgetting falls with the damping, intransigence rises: every damping is on the front, fisher is better."""
    found: Results = []
    for trial in trials:
        share = (math.log10(trial.params["step.damping"]) + 3) / 4
        worse = 0.5 if trial.params["step.geometry"] == "euclidean" else 0.0
        values = {"fm": 1 - share + worse, "int": share + worse, "acc": share}
        found.append([result(0, **values)])
    return found


def result(seed: int = 0, **metrics: float) -> Result:
    return Result("split-digits", "tmln", seed, {}, said=metrics, seconds=3.0)


def test_the_mean_over_seeds_or_why_there_is_none() -> None:
    two = [result(fm=0.1, int=0.3), result(1, fm=0.3, int=-0.1)]
    assert average_objectives(two, ("fm", "int", "seconds")) == pytest.approx((0.2, 0.1, 3.0))
    assert (
        average_objectives([two[0], replace(two[1], diverged="the loss is nan")], ("fm",))
        == "seed 1 diverged: the loss is nan"
    )
    assert average_objectives([two[0], None], ("fm",)) == "a run failed"
    assert average_objectives([result(fm=0.1)], ("fm", "int")) == "a run has no INT, its joint reference is missing"
    assert average_objectives([result(fm=math.nan)], ("fm",)) == "a run has no FM"


def test_the_front_is_that_of_all_pairs(tmp_path: Path) -> None:
    found = search(tmp_path)
    said: list[int] = []
    trials = found.search(20, 3, pretend, lambda trial: said.append(trial.number))
    assert said == [trial.number for trial in trials] == list(range(20))

    def values(trial: Trial) -> tuple[float, float]:
        assert trial.values is not None
        return trial.values[0], trial.values[1]

    def beaten(trial: Trial) -> bool:
        a, b = values(trial)
        return any(x <= a and y <= b and (x, y) != (a, b) for x, y in map(values, trials))

    best = {trial.number for trial in trials if not beaten(trial)}
    assert {trial.number for trial in found.best()} == best
    assert [values(trial)[0] for trial in found.best()] == sorted(values(trial)[0] for trial in found.best())
    for trial in trials:
        assert trial.config.resolved()["settings"]["step.damping"] == trial.params["step.damping"]
        assert float(f"{trial.params['step.damping']:.4g}") == trial.params["step.damping"]
        assert isinstance(trial.params["replay.capacity"], int)


def test_more_of_it_is_better_where_it_is(tmp_path: Path) -> None:
    found = search(tmp_path, objectives={"acc": True})
    trials = found.search(12, 2, pretend)
    (best,) = found.best()
    assert best.values == max(trial.values for trial in trials if trial.values)


def test_it_goes_on_where_it_was_and_draws_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = search(tmp_path / "a").search(12, 1, pretend)
    first = search(tmp_path / "b").search(6, 1, pretend)
    again = search(tmp_path / "b")
    assert len(again.list_ended()) == 6
    rest = again.search(12, 1, pretend)
    assert [trial.params for trial in first + rest] == [trial.params for trial in whole]
    assert again.search(12, 1, pretend) == []


def test_an_interrupted_trial_is_taken_up_again(tmp_path: Path) -> None:
    found = search(tmp_path)
    asked: list[dict[str, Any]] = []

    def stop(trials: Sequence[Trial]) -> Results:
        asked.extend(trial.params for trial in trials)
        raise KeyboardInterrupt

    found.search(3, 1, pretend)
    with pytest.raises(KeyboardInterrupt):
        found.search(10, 2, stop)
    assert len(found.list_ended()) == 3
    again = search(tmp_path).search(5, 2, pretend)
    assert [trial.params for trial in again] == asked


def test_trials_of_dead_processes_are_taken_up_and_those_of_others_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "STALE", 2)
    monkeypatch.setattr(searches, "BEAT", 0.1)
    monkeypatch.setattr(searches, "PAUSE", 0.1)
    found = search(tmp_path)
    lost, alive = found._ask(), found._ask()
    again, waited = search(tmp_path), list[int]()

    def end(others: int) -> None:
        waited.append(others)
        if others == 1 and len(waited) > 1:  # the first one is stale, and was queued again
            found._end(alive, found._read(alive), "a run failed")

    with found._heartbeat([alive]):
        (taken,) = again.search(2, 1, pretend, on_wait=end)
    assert waited[0] == 2, "both are within their time"
    assert taken.params["step.damping"] == found._read(lost).params["step.damping"]
    assert taken.number not in (lost.number, alive.number)


def test_a_trial_has_heartbeats_while_it_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "BEAT", 0.01)
    found, beats = search(tmp_path), list[int]()
    enough = threading.Event()

    def record(trial: int) -> None:
        beats.append(trial)
        if len(beats) == 1:
            raise ConnectionError
        if len(beats) > 2:
            enough.set()

    trial = found._ask()
    monkeypatch.setattr(found._storage, "record_heartbeat", record)
    with found._heartbeat([trial]):
        assert enough.wait(60)
    assert not any(thread.name == "heartbeat of trials" for thread in threading.enumerate())
    assert len(set(beats)) == 1


def test_a_trial_of_an_earlier_version_is_queued_again(tmp_path: Path) -> None:
    old = search(tmp_path)._ask()
    old.set_user_attr(OWNER, "{}")
    (trial,) = search(tmp_path).search(1, 1, pretend)
    assert trial.params["step.damping"] == search(tmp_path)._read(old).params["step.damping"]


def test_a_diverged_trial_counts_and_says_so(tmp_path: Path) -> None:
    found = search(tmp_path)

    def diverge(trials: Sequence[Trial]) -> Results:
        return [[replace(result(fm=0.1, int=0.1), diverged="the loss is inf")] for _ in trials]

    (trial,) = found.search(1, 1, diverge)
    assert trial.values is None
    assert trial.why == "seed 0 diverged: the loss is inf"
    assert found.best() == []
    assert [ended.why for ended in search(tmp_path).list_ended()] == [trial.why]
    assert len(found.search(3, 1, pretend)) == 2


def test_searches_that_differ_do_not_mix(tmp_path: Path) -> None:
    names = {
        search(tmp_path).name,
        search(tmp_path, seeds=2).name,
        search(tmp_path, objectives={"acc": True}).name,
        Search(BASE.with_setting("epochs", 3), SPACES, BOTH, f"sqlite:///{tmp_path / 'tune.db'}").name,
        Search(BASE, {"step.damping": Range(1, 2)}, BOTH, f"sqlite:///{tmp_path / 'tune.db'}").name,
    }
    assert len(names) == 5


FEW = ["--set", "benchmark.per_class=24", "--set", "benchmark.per_class_test=10", "--epochs", "1"]


@pytest.mark.usefixtures("warm")
def test_the_command_and_the_one_it_recommends(tmp_path: Path) -> None:
    words = ["tune", "--benchmark", "split-digits", "--trials", "2", "--objective", "acc", "--runs", str(tmp_path)]
    first = CliRunner().invoke(app, [*words, *FEW, "--space", "lr=0.001..1", "--workers", "1"])
    assert first.exit_code == 0, first.output
    assert len(re.findall(r"^trial \d: ACC [\d.]+ \(lr=[\d.]+\)$", first.output, re.M)) == 2
    (command,) = re.findall(r"^  tmln (run .*)$", first.output, re.M)
    again = CliRunner().invoke(app, [*command.split(), "--int-reference", "none"])
    assert again.exit_code == 0, again.output
    assert "done before" in again.output
    more = CliRunner().invoke(app, [*words, *FEW, "--space", "lr=0.001..1"])
    assert "2 trials are there already" in more.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--objective", "fmm"], "did you mean 'fm'"),
        (["--objective", ","], "an objective is a metric"),
        (["--int-reference", "none", "--objective", "fm,int"], "INT needs a joint reference"),
        (["--set", "benchmark.validation=0", "--objective", "val_acc"], "val_acc needs a validation split"),
        (["--report-on", "rotated-digits", "--final-seeds", "0"], "--final-seeds must be at least 1"),
        (["--final-seeds", "2", "--objective", "fm,int"], "chosen by one objective"),
        (["--report-on", "split-digts"], "unknown benchmark 'split-digts'"),
        (["--methods", "er,tmln", "--method", "er"], "not both"),
        (["--space", "step.dampin"], "did you mean 'step.damping'"),
        (["--storage", "nonsense"], "'nonsense' is no database URL"),
        (["--storage", "mystery://x"], "'mystery://x' is no database URL"),
        (["--storage", "sqlite:////nowhere/tune.db"], "nowhere/tune.db cannot be reached or written: unable to open"),
    ],
)
def test_mistakes_are_answered(words: list[str], said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["tune", "--benchmark", "split-digits", "--runs", str(tmp_path), *words])
    assert result.exit_code != 0
    assert isinstance(result.exception, ValueError)
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_missing_driver_is_named_and_a_password_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError) as error:
        open_study("postgresql+psycopg://me:secret@127.0.0.1/x", "study", ["minimize"])
    assert "needs psycopg: pip install 'psycopg[binary]'" in str(error.value)
    assert "me:...@127.0.0.1" in str(error.value)
    assert "secret" not in str(error.value)


def test_a_database_that_goes_away_is_one_line(tmp_path: Path) -> None:
    found = search(tmp_path)
    (tmp_path / "tune.db").write_bytes(b"no database any more" * 1000)
    with (
        pytest.raises(ValueError, match="cannot be reached or written"),
        database_errors(f"sqlite:///{tmp_path}/tune.db"),
    ):
        found.search(1, 1, pretend)
