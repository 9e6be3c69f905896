"""Runs as bytes: all of a folder but its lock, the result last, nothing outside of it; and what a machine away asks."""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.killing import config, uninterrupted
from tmln.fleet import bundle, errand
from tmln.fleet.bundle import pack, unpack
from tmln.fleet.errand import Errand, Lease, do, scratch
from tmln.fleet.plan import Job
from tmln.fleet.task import Task
from tmln.lab.store import Store
from tmln.lab.terms import Terms


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and ".lock" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_a_run_goes_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Store(tmp_path / "a").open(config("er"))
    (run.path / "checkpoint" / "x").mkdir(parents=True)
    (run.path / "checkpoint" / "x" / "state").write_bytes(b"\0\1")
    (run.path / "result.json").write_text("{}")
    (run.path / "a.txt").write_text("a")
    order: list[str] = []

    def noted(path: Path, data: bytes) -> None:
        order.append(path.name)
        path.write_bytes(data)

    monkeypatch.setattr(bundle, "write_whole", noted)
    with run.lock:
        unpack(pack(run.path), tmp_path / "b")
    assert files(tmp_path / "b") == files(run.path)
    assert (order[-1], len(order)) == ("result.json", 4)
    unpack(pack(run.path, ("config.yaml",)), tmp_path / "c")
    assert list(files(tmp_path / "c")) == ["config.yaml"]
    assert pack(tmp_path / "nowhere") == b""


def test_nothing_is_written_outside(tmp_path: Path) -> None:
    for name in ("../outside", "/outside"):
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as file:
            file.writestr(name, "x")
        with pytest.raises(ValueError, match="is no file of a run"):
            unpack(data.getvalue(), tmp_path / "run")


def away(root: Path, **more: object) -> Errand:
    return replace(Errand(Task(Job(config("er")), str(root), Terms("none"))), **more)  # type: ignore[arg-type]


def test_a_folder_that_is_another_one_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errand, "SEEN", 0.0)
    outcome, data = do(away(tmp_path, token=".command-1"), lambda moment: None, lambda: False)
    assert outcome.state == "failed"
    assert "is not the folder of the command: put --out on a disk that all machines see" in outcome.error
    assert data == b""
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_stopped_sent_back_and_goes_on_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMLN_SCRATCH", str(tmp_path / "one"))
    before: list[int] = []
    wanted = away(tmp_path / "runs", collect=True)
    name = Store(tmp_path / "runs").open(config("er")).name
    outcome, data = do(wanted, lambda moment: before.append(moment.step), lambda: len(before) > 12)
    assert outcome.state == "stopped"
    monkeypatch.setenv("TMLN_SCRATCH", str(tmp_path / "two"))
    after: list[int] = []
    outcome, data = do(replace(wanted, sent={name: data}), lambda moment: after.append(moment.step), lambda: False)
    assert outcome.state == "finished"
    unpack(data, tmp_path / "runs" / name)
    result = Store(tmp_path / "runs").open(config("er")).result
    assert result is not None
    assert result.weights_sha256 == uninterrupted(tmp_path / "whole", config("er")).weights_sha256
    assert after[0] == before[-1] + 1, "it went on"
    assert not any(scratch(wanted.task.root).iterdir()), "what was sent back is not kept"


def test_data_are_fetched_once_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setenv("TMLN_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(errand, "get_data", asked.append)
    errand.provide(away(tmp_path))
    assert asked == []
    errand.provide(away(tmp_path, fetch=True))
    assert asked == ["digits"]
    assert os.environ["TMLN_DATA"] == str(tmp_path / "data")


def test_a_lease_is_over_after_silence() -> None:
    times = iter([0.0, 30.0, 31.0, 31.0, 60.0])
    lease = Lease(30.0, lambda: next(times))
    said = [lease.over, lease.over]
    lease.hear()
    assert [*said, lease.over] == [False, True, False]
