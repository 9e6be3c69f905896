"""A process that is stopped for longer than the stale time, whose run another machine takes over, and that wakes."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.torture.operations import Operation, look
from benchmarks.torture.reached import LOCK, LockLost, Moment, RunLock, RunLocked, module
from benchmarks.torture.scene import METHODS, Scene, Seen, compare, work
from benchmarks.torture.verdict import Verdict, different, lost, unclear
from benchmarks.torture.warm import PATIENCE, Child, Tell, call

CHECKED = "what it asked its lock for"
STALE = 0.3  # seconds, for the trials; 60 for everybody else


def sleep_at(tell: Tell, root: Path, method: str, at: int, file: str) -> str:
    """Stops itself at this step, or, if a file is named, as it opens that to write for the first time after it, or,
    worst of all, when it has just been told that the run is still its own."""
    armed, check = False, RunLock.check

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def on(operation: Operation) -> None:
        nonlocal armed
        if armed and operation.kind == "open" and operation.file == file:
            armed = False
            stop()

    def step(moment: Moment) -> None:
        nonlocal armed
        if moment.step == at:
            armed = bool(file)
            if not file:
                stop()

    def told(lock: RunLock) -> None:
        nonlocal armed
        check(lock)
        if armed and file == CHECKED:
            armed = False
            stop()

    look(root, on)
    vars(module(LOCK))["RunLock"].check = told
    try:
        work(lambda value: None, root, method, step, STALE)
        return "finished"
    except LockLost as error:
        return str(error)


def elsewhere(tell: Tell, root: Path, method: str) -> int:
    """A process of another machine: only silence tells it that the owner is gone."""
    vars(module(LOCK))["_machine"] = lambda: "another machine"
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return work(lambda value: None, root, method, stale=STALE)
        except RunLocked:
            if time.monotonic() > end:
                raise
            time.sleep(STALE / 3)


def here(tell: Tell, root: Path, method: str) -> str:
    try:
        work(lambda value: None, root, method, stale=STALE)
    except RunLocked as error:
        return str(error)
    return "taken"


def stopped(pid: int) -> bool:
    """Whether the process is stopped at last; False if it has ended."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state in "TZX":
                return state == "T"
        time.sleep(0.01)
    return False


def trial(scene: Scene, index: int, each: int) -> Verdict:
    """In turn: stopped at a step, before and within the writing of a line of the log, within that of a checkpoint."""
    chance, root, method = scene.chance("stop", index), scene.folder("stop", index), METHODS[index % len(METHODS)]
    whole = scene.whole(method)
    assert whole.result is not None
    file = ("", "log.jsonl", CHECKED, "state.json")[index % 4]
    at = chance.randint(1, whole.result["steps"] - 5)
    what, runs = f"{method}, stopped at step {at}{' before a write to ' if file else ''}{file}", root / "runs"
    sleeper = Child(sleep_at, runs, method, at, file)
    try:
        if not stopped(sleeper.pid):
            return lost(f"{what}: it was not")
        time.sleep(2 * STALE)
        near, far = call(here, runs, method), call(elsewhere, runs, method)
        verdict = Verdict(1)
        if far.code:
            verdict += lost(f"{what}: nobody could take it over: {far.said[-300:]}")
        if not isinstance(near.value, str) or "is being worked on by process" not in near.value:
            verdict += different(f"{what}: a process of the same machine took it: {near.value or near.said[-200:]}")
    finally:
        sleeper.signal(signal.SIGCONT)
        woken = sleeper.wait()
    verdict += compare(whole, Seen.of(runs, method), f"{what}, woken")
    if woken.code or not isinstance(woken.value, str):
        verdict += unclear(f"{what}, woken: {woken.said[-300:]}")
    elif "another took over" not in woken.value:
        verdict += different(f"{what}, woken: {woken.value}")
    left = {path.name for path in (runs / next(iter(os.listdir(runs)))).iterdir()}
    if left - {"checkpoint", "config.yaml", "log.jsonl", "result.json", ".lock"}:
        verdict += different(f"{what}, woken: it left {sorted(left)}")
    shutil.rmtree(root)
    return verdict
