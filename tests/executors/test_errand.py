"""A run away from home, without Ray: what is taken of what was sent, whose folder it is, and when it gives up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.killing import config
from tmln.executors import errand
from tmln.executors.bundle import pack
from tmln.executors.errand import Errand, Lease, do, scratch, taken_in
from tmln.executors.interfaces import RunRequest
from tmln.executors.plan import Job
from tmln.experiments.lock import RunLock
from tmln.experiments.run_options import RunOptions
from tmln.experiments.store import Store


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(errand.VARIABLE, str(tmp_path / "scratch"))


def asked(tmp_path: Path) -> Errand:
    return Errand(RunRequest(Job(config("naive", epochs=1)), str(tmp_path / "runs"), RunOptions()), collect=True)


def with_step(folder: Path, step: int) -> None:
    place = folder / "checkpoint" / f"00000001-step-{step}"
    place.mkdir(parents=True)
    (place / "state.json").write_text(f"{step}")


@pytest.mark.parametrize(("left", "sent", "taken"), [(9, 30, 30), (30, 9, 30), (None, 9, 9), (9, None, 9)])
def test_what_goes_further_is_taken(left: int | None, sent: int | None, taken: int, tmp_path: Path) -> None:
    wanted = asked(tmp_path)
    home, here = Store(wanted.task.root), Store(scratch(wanted.task.root))
    run = home.open(wanted.task.job.config)
    for store, step in ((here, left), (home, sent)):
        if step is not None:
            with_step(store.open(wanted.task.job.config).path, step)
    found = taken_in(replace(wanted, sent={run.name: pack(run.path)}))
    assert [path.name for path in found.checkpoints.iterdir()] == [f"00000001-step-{taken}"]
    assert not found.lock.held


def test_a_run_that_another_is_at_here_is_left_to_it(tmp_path: Path) -> None:
    wanted = asked(tmp_path)
    run = Store(scratch(wanted.task.root)).open(wanted.task.job.config)
    with RunLock(run.path / ".lock"):
        outcome, files = do(wanted, lambda moment: None, lambda: False)
    assert (outcome.state, files) == ("locked", b"")


def test_a_collected_run_is_sent_and_not_kept(tmp_path: Path) -> None:
    wanted = asked(tmp_path)
    outcome, files = do(wanted, lambda moment: None, lambda: False)
    assert outcome.state == "finished"
    assert files
    assert not list(scratch(wanted.task.root).glob("[!.]*"))
    assert not (tmp_path / "runs").exists(), "the folder of the command is on another machine"


def test_a_folder_that_is_not_the_commands_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errand, "SEEN", 0.0)
    wanted = replace(asked(tmp_path), collect=False, token=".command-1")
    outcome, _ = do(wanted, lambda moment: None, lambda: False)
    assert outcome.state == "failed"
    assert "is not the folder of the command" in outcome.error
    assert "--collect" in outcome.error


def test_data_are_fetched_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[str] = []
    monkeypatch.setenv("TMLN_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(errand, "get_data", got.append)
    wanted = asked(tmp_path)
    cifar = replace(wanted, task=replace(wanted.task, job=Job(config("naive", benchmark="split-mnist"))))
    errand.provide(cifar)
    assert got == []
    errand.provide(replace(cifar, fetch=True))
    assert got == ["mnist"]


def test_without_a_word_for_too_long_it_is_over() -> None:
    now = 0.0
    lease = Lease(30.0, lambda: now)
    now = 30.0
    assert not lease.over
    lease.hear()
    now = 60.0
    assert not lease.over
    now = 60.1
    assert lease.over
