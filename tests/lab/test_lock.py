"""The lock: one winner whoever races, the owner named, the dead and the silent replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.lab.killing import PATIENCE
from tmln.lab.lock import LockLost, Owner, RunLock, RunLocked, alive


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
    assert len(list((tmp_path / "run" / ".lock").iterdir())) == 1


def test_it_is_released_when_the_work_fails(tmp_path: Path) -> None:
    def work() -> None:
        with RunLock(tmp_path):
            raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            work()


def leave(folder: Path, owner: Owner | None, age: float = 0.0, number: int = 1) -> Path:
    """The lock of a process that is not this one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:08d}"
    path.write_text(json.dumps(asdict(owner)) if owner else "")
    os.utime(path, (time.time() - age, time.time() - age))
    return path


HERE = Owner.this_process()
ELSEWHERE = replace(HERE, host="far", machine="another boot")


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_which_processes_are_there() -> None:
    assert alive(HERE) is True
    assert alive(replace(HERE, started="1")) is False, "the number was given to another process"
    assert alive(replace(HERE, pid=dead_process())) is False
    assert alive(ELSEWHERE) is None
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        owner = replace(HERE, pid=process.pid)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert alive(owner) is False, "one that has ended but was not waited for"


def test_a_lock_of_the_dead_is_taken_at_once(tmp_path: Path) -> None:
    leave(tmp_path, replace(HERE, pid=dead_process()))
    with RunLock(tmp_path):
        pass


def test_a_process_that_is_there_keeps_its_lock_however_silent(tmp_path: Path) -> None:
    leave(tmp_path, HERE, age=1e6)
    with pytest.raises(RunLocked, match=r"1000\d\d\d s ago"):
        RunLock(tmp_path).acquire()


@pytest.mark.parametrize("owner", [ELSEWHERE, None])
def test_of_other_machines_only_silence_tells(owner: Owner | None, tmp_path: Path) -> None:
    leave(tmp_path, owner, age=20_000)
    with pytest.raises(RunLocked, match=r"if it has died, try again in (40|39)\d\d\d s"):
        RunLock(tmp_path, stale_after=60_000).acquire()
    with RunLock(tmp_path, stale_after=10):
        pass


def test_the_heartbeat_keeps_it_fresh_and_notices_a_new_owner(tmp_path: Path) -> None:
    lock = RunLock(tmp_path, stale_after=0.12)
    lock.acquire()
    mine = tmp_path / "00000001"
    os.utime(mine, (0, 0))
    wait_for(lambda: mine.stat().st_mtime > 0)
    leave(tmp_path, ELSEWHERE, number=2)
    with pytest.raises(LockLost, match="another took over"):
        lock.check()
    mine.unlink()
    wait_for(lambda: lock.lost)
    lock.release()
    assert [path.name for path in tmp_path.iterdir()] == ["00000002"], "the new owner's lock is left alone"


def wait_for(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# -- races between processes -------------------------------------------------------------------------------------------

RACE = """
import sys, time
from pathlib import Path
from tmln.lab.lock import RunLock, RunLocked
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
    rounds, dead = 40, dead_process()
    for number in range(rounds):
        leave(tmp_path / str(number), [replace(HERE, pid=dead), ELSEWHERE, None][number % 3], age=1000)
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
from tmln.lab.lock import RunLock, RunLocked
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


def test_a_killed_holder_is_replaced_at_once(tmp_path: Path) -> None:
    script = (
        "import sys; from tmln.lab.lock import RunLock; RunLock(sys.argv[1]).acquire(); print(1, flush=True); input()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(RunLocked, match=f"process {holder.pid}"):
            RunLock(tmp_path).acquire()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with RunLock(tmp_path):
        pass


def test_silence_of_just_the_stale_time_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(tmp_path, ELSEWHERE)
    lock = RunLock(tmp_path, stale_after=10)
    beat = next(tmp_path.iterdir()).stat().st_mtime
    monkeypatch.setattr(lock, "_now", lambda: beat + 10)
    with pytest.raises(RunLocked):
        lock.acquire()
    monkeypatch.setattr(lock, "_now", lambda: beat + 10.5)
    lock.acquire()
    lock.release()


def test_a_released_lock_has_no_heartbeat_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, ended = RunLock(tmp_path), []

    def slow() -> None:
        lock._stop.wait()
        time.sleep(0.05)
        ended.append(True)

    monkeypatch.setattr(lock, "_beat", slow)
    lock.acquire()
    lock.release()
    assert ended


@pytest.mark.parametrize("name", ["1", "7", "000000001", "٣٣٣٣٣٣٣٣", "1e8"])
def test_files_of_others_are_no_locks(name: str, tmp_path: Path) -> None:
    """A file '1' was taken for lock 00000001, which was not there, and looked at again for ever."""
    (tmp_path / name).touch()
    with RunLock(tmp_path) as lock:
        lock.check()
    assert (tmp_path / name).exists()


def test_a_lock_is_there_with_its_owner_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever dies in the moment of taking it leaves none."""

    def dies(*paths: object) -> None:
        assert not [path for path in tmp_path.iterdir() if path.name.isdigit()]
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", dies)
    with pytest.raises(KeyboardInterrupt):
        RunLock(tmp_path).acquire()
    monkeypatch.undo()
    with RunLock(tmp_path):
        (only,) = [path for path in tmp_path.iterdir() if path.name.isdigit()]
        assert json.loads(only.read_text(encoding="utf-8"))["pid"] == os.getpid()
