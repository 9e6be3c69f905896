"""Let clocks jump by hours and years, in both directions: of the machine, and of the file system that locks go by.

The clock is put into the modules that look at it; nobody sets the machine's.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

from benchmarks.torture.kills import killed_at
from benchmarks.torture.reached import CLOCKED, RunLock, RunLocked, module
from benchmarks.torture.scene import TRAINED, Scene, newest, work
from benchmarks.torture.verdict import Verdict, different, lost, unclear
from benchmarks.torture.warm import Tell, call

JUMPS = (1.0, 3600.0, 86400.0, 10 * 365 * 86400.0)  # seconds


class Jumping:
    """The wall clock jumps at every look; the monotonic one forwards only, as after a suspended night."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.ahead = chance, 0.0

    def time(self) -> float:
        return max(0.0, time.time() + self.chance.choice((-1, 1)) * self.chance.choice(JUMPS))

    def monotonic(self) -> float:
        self.ahead += self.chance.choice((0.0, 0.0, 0.0, *JUMPS[:3]))
        return time.monotonic() + self.ahead

    def strftime(self, form: str) -> str:
        return time.strftime(form, time.localtime(self.time()))


def jump(seed: str) -> None:
    clock = Jumping(random.Random(seed))
    names = SimpleNamespace(
        time=clock.time,
        monotonic=clock.monotonic,
        strftime=clock.strftime,
        sleep=time.sleep,
        perf_counter=time.perf_counter,
    )
    for name in CLOCKED:
        vars(module(name))["time"] = names


def jumping_kill(tell: Tell, root: Path, method: str, at: int, seed: str) -> int:
    jump(seed)
    return killed_at(tell, root, method, at)


def jumping_work(tell: Tell, root: Path, method: str, seed: str) -> int:
    jump(seed)
    return work(tell, root, method)


def trial(scene: Scene, index: int, each: int) -> Verdict:
    """Kill and continue a run while the clocks jump; then check that locks hold meanwhile."""
    chance, root, method = scene.chance("clocks", index), scene.folder("clocks", index), TRAINED[index % len(TRAINED)]
    whole = scene.whole(method)
    assert whole.result is not None
    at, runs = chance.randint(1, whole.result["steps"]), root / "runs"
    what = f"{method}, clocks that jump, killed at step {at}"
    if not (ended := call(jumping_kill, runs, method, at, f"{index} a")).killed:
        return lost(f"{what}: it was not: {ended.said[-300:]}")
    for lock in runs.glob("*/.lock/*"):
        shifted = max(0.0, time.time() + chance.choice((-1, 1)) * chance.choice(JUMPS))
        os.utime(lock, (shifted, shifted))
    before = newest(runs, method)
    verdict = Verdict(1) + scene.gone_on(call(jumping_work, runs, method, f"{index} b"), runs, method, before, what)
    ended = call(locks, root / "lock", chance.choice(JUMPS))
    verdict += ended.value if isinstance(ended.value, Verdict) else lost(f"locks under jumps: {ended.said[-300:]}")
    shutil.rmtree(root)
    return verdict


def locks(tell: Tell, folder: Path, seconds: float) -> Verdict:
    """Check that a held lock is refused to others, whatever times its files have."""
    verdict = Verdict()
    for shift in (-seconds, seconds):
        with RunLock(folder) as lock:
            for path in folder.iterdir():
                os.utime(path, (max(0.0, time.time() + shift),) * 2)
            verdict += Verdict(1) + _refused(RunLock(folder), f"a lock whose time is {shift:+g} s")
            lock.check()
    return verdict


def _refused(lock: RunLock, what: str) -> Verdict:
    try:
        lock.acquire()
    except RunLocked as error:
        return (
            unclear(f"{what}: {error}")
            if "\n" in str(error) or "is being worked on by" not in str(error)
            else Verdict()
        )
    lock.release()
    return different(f"{what}: it was taken from its owner")
