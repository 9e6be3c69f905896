"""The lock: one winner whoever races, the owner named, the dead replaced at once, the stopped left in peace."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tmln.experiments.lock import (
    OBJECTS,
    LockLost,
    RunLock,
    RunLocked,
    check_file_system,
    file_system_type,
    find_missing,
)


def test_a_second_one_is_told_who_holds_it(tmp_path: Path) -> None:
    with RunLock(tmp_path / "run" / ".lock") as lock:
        with pytest.raises(
            RunLocked, match=rf"run .*run is being worked on by process {os.getpid()} on .* since .*; stop it"
        ):
            RunLock(tmp_path / "run" / ".lock").acquire()
        with pytest.raises(RuntimeError, match="already"):
            lock.acquire()
        lock.check()
    with RunLock(tmp_path / "run" / ".lock"):
        pass
    assert sorted(path.name for path in (tmp_path / "run" / ".lock").iterdir()) == ["held", "owner"]


def test_it_is_released_when_the_work_fails(tmp_path: Path) -> None:
    def work() -> None:
        with RunLock(tmp_path):
            raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            work()


@pytest.mark.parametrize("owner", [b"", b"\xff\n\n", b"{}"])
def test_an_owner_that_cannot_be_read_is_another_process(owner: bytes, tmp_path: Path) -> None:
    with RunLock(tmp_path):
        (tmp_path / "owner").write_bytes(owner)
        with pytest.raises(RunLocked, match=r"is being worked on by \S+.*; stop it") as error:
            RunLock(tmp_path).acquire()
    assert "\n" not in str(error.value)


def test_files_that_the_lock_of_an_older_version_left_are_no_lock(tmp_path: Path) -> None:
    (tmp_path / "00000007").write_text("{}")
    with RunLock(tmp_path) as lock:
        lock.check()
    assert (tmp_path / "00000007").exists()


def test_only_the_holder_passes_the_check(tmp_path: Path) -> None:
    lock = RunLock(tmp_path / ".lock")
    with pytest.raises(LockLost, match="its lock was not taken"):
        lock.check()
    with lock:
        lock.check()
    with pytest.raises(LockLost):
        lock.check()


def test_a_run_that_was_removed_and_taken_anew_is_lost(tmp_path: Path) -> None:
    with RunLock(tmp_path / ".lock") as lock:
        shutil.rmtree(tmp_path / ".lock")
        with pytest.raises(LockLost, match="its folder was removed"):
            lock.check()
        with RunLock(tmp_path / ".lock") as other:
            with pytest.raises(LockLost, match="leave the run to that one"):
                lock.check()
            other.check()
    with RunLock(tmp_path / ".lock"):
        pass


def test_a_lock_may_be_used_from_another_thread(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    lock.acquire()
    for work in (lock.check, lock.release):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert not lock.held


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """Workers that read data are forks: one that outlives a killed process must not hold its run."""
    lock = RunLock(tmp_path)
    lock.acquire()
    fork = multiprocessing.get_context("fork")
    end, told = fork.Event(), fork.Queue()

    def child() -> None:
        told.put(lock.held)
        end.wait()

    process = fork.Process(target=child)
    process.start()
    try:
        assert told.get() is False
        lock.check()
        lock.release()
        with RunLock(tmp_path):
            pass
    finally:
        end.set()
        process.join()


# -- races between processes -------------------------------------------------------------------------------------------

RACE = """
import sys, time
from pathlib import Path
from tmln.experiments.lock import RunLock, RunLocked
root, rounds = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
start = float(sys.stdin.readline())
locks = []
for number in range(rounds):
    lock = RunLock(root / str(number))
    while time.time() < start + 0.02 * number:
        pass
    try:
        lock.acquire()
    except RunLocked:
        continue
    locks.append(lock)
    print(number, flush=True)
print("done", flush=True)
sys.stdin.readline()
"""


def test_of_several_that_race_for_an_abandoned_lock_one_wins(tmp_path: Path) -> None:
    rounds = 40
    for number in range(0, rounds, 2):  # of the others there was none before
        with RunLock(tmp_path / str(number)):
            pass
    command = [sys.executable, "-c", RACE, str(tmp_path), str(rounds)]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(4)
    ]
    winners: list[int] = []
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    start = time.time() + 0.1
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(f"{start}\n")
    for racer in racers:
        assert racer.stdout is not None
        winners.extend(map(int, iter(racer.stdout.readline, "done\n")))
    for racer in racers:  # all held their locks until all had tried
        racer.communicate("\n")
        assert racer.returncode == 0
    assert sorted(winners) == list(range(rounds))


CHURN = """
import os, random, sys, time
from pathlib import Path
from tmln.experiments.lock import RunLock, RunLocked
root, turns = Path(sys.argv[1]), int(sys.argv[2])
inside, chance = root / "inside", random.Random(os.getpid())
print("ready", flush=True)
sys.stdin.readline()
while turns:
    lock = RunLock(root / ".lock")
    try:
        lock.acquire()
    except RunLocked:
        continue
    os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails if another is in here
    lock.check()
    time.sleep(chance.random() * 0.001)
    inside.unlink()
    lock.release()
    turns -= 1
"""


def test_no_two_are_ever_inside(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHURN, str(tmp_path), "50"]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    workers = [subprocess.Popen(command, text=True, bufsize=1, **pipes) for _ in range(4)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
    for worker in workers:
        _, err = worker.communicate()
        assert worker.returncode == 0, err


HOLD = """
import sys
from tmln.experiments.lock import RunLock
with RunLock(sys.argv[1]):
    print(1, flush=True)
    input()
"""


def test_a_stopped_holder_keeps_it_and_a_killed_one_is_replaced_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(RunLocked, match=f"process {holder.pid}"):
                RunLock(tmp_path).acquire()
        finally:
            holder.kill()
    with RunLock(tmp_path) as lock:
        lock.check()


def refuse(number: int) -> Callable[..., Any]:
    def call(*given: Any, **more: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_a_file_system_without_locks_is_one_line(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Lustre without its option flock, some of FUSE, and NFS without a lock daemon answer."""
    monkeypatch.setattr(fcntl, "flock", refuse(number))
    with pytest.raises(ValueError, match=r"cannot hold runs: it does not lock a file .*; choose") as error:
        RunLock(tmp_path / "run" / ".lock").acquire()
    assert "\n" not in str(error.value)


def test_nothing_is_missing_here_and_nothing_is_left(tmp_path: Path) -> None:
    assert find_missing(tmp_path) == []
    assert check_file_system(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []
    assert file_system_type(Path("/proc/self")) == "proc"


@pytest.mark.parametrize(
    ("name", "broken", "said"),
    [
        ("replace", refuse(errno.EPERM), "replace a file by renaming"),
        ("rename", refuse(errno.ENOSYS), "rename a folder"),
        ("flock", lambda *given: None, "lock a file"),
    ],
)
def test_what_is_missing_is_named(
    name: str, broken: Callable[..., Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl if name == "flock" else os, name, broken)
    (found,) = find_missing(tmp_path)
    assert found.startswith(said)
    with pytest.raises(ValueError, match=rf"cannot hold runs: it does not {said}.*; choose another --runs: "):
        check_file_system(tmp_path)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_no_matter_of_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", refuse(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        find_missing(tmp_path)


def test_stores_of_objects_are_doubted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tmln.experiments.lock.file_system_type", lambda folder: f"fuse.{OBJECTS[0]}")
    assert "locks between machines do not hold" in check_file_system(tmp_path)
