"""What seldom comes: a number made twice, a dead child, a beat that is due, a loss noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tmln.lab.config import RunConfig
from tmln.lab.lock import LockLost, Owner, RunLock, alive
from tmln.lab.store import Store


def test_a_number_that_was_used_before_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the making others took numbers 1 and 2, and removed 1: making 1 again is no lock."""
    lock = RunLock(tmp_path)
    looks = iter([[], [2, 1]])
    monkeypatch.setattr(lock, "_numbers", lambda: next(looks))
    assert lock._try() is False
    assert not (tmp_path / "00000001").exists()
    monkeypatch.undo()
    with lock:
        lock.check()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="states of processes are read from /proc")
def test_a_process_that_has_ended_is_dead_before_its_parent_asks() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    owner = replace(Owner.this_process(), pid=child.pid, started=fields[19])
    assert alive(owner) is True
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is still in the table
    assert alive(owner) is False
    child.wait()


def test_several_beats_fall_into_the_time_after_which_others_take_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, pauses = RunLock(tmp_path, stale_after=60.0), []

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        return True

    lock._mine = tmp_path / "00000001"
    monkeypatch.setattr(lock._stop, "wait", wait)
    lock._beat()
    assert pauses == [10.0]


def test_a_loss_that_the_beat_noticed_is_final(tmp_path: Path) -> None:
    with RunLock(tmp_path) as lock:
        lock.check()
        lock.lost = True  # its file was gone for a moment, and is there again
        with pytest.raises(LockLost):
            lock.check()


def test_a_new_run_is_on_the_disk_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("tmln.lab.store.sync_folder", synced.append)
    config = RunConfig(benchmark="split-digits", method="naive")
    Store(tmp_path / "runs").open(config)
    assert synced == [tmp_path / "runs"]
    Store(tmp_path / "runs").open(config)
    assert len(synced) == 1  # it was there
