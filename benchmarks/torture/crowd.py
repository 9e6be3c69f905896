"""Start eight processes on one run, some of which die in it: one works at a time, and the run is finished."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from benchmarks.torture.reached import RunLocked, StepInfo
from benchmarks.torture.scene import TRAINED, Scene, Seen, compare, work
from benchmarks.torture.verdict import Verdict, different, lost, unclear
from benchmarks.torture.warm import Child, Tell

DEADLY = 0.4  # the share of them that die at a step of their own


def contend(tell: Tell, root: Path, method: str, go: Path, who: Path, at: int) -> tuple[int, list[str]]:
    """Try until the run is done; die at step ``at``. Report how often it was refused, and other errors."""
    handle = os.open(who, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    refused = 0
    odd: list[str] = []

    def step(info: StepInfo) -> None:
        os.write(handle, f"{os.getpid()} {info.step}\n".encode())
        if info.step == at:
            os.kill(os.getpid(), signal.SIGKILL)

    tell("ready")
    while not go.exists():
        time.sleep(0.001)
    while True:
        try:
            work(lambda value: None, root, method, step)
            return refused, odd
        except RunLocked as error:
            refused += 1
            if "\n" in str(error) or "is being worked on by " not in str(error):
                odd.append(str(error))
            time.sleep(0.05)


def trial(scene: Scene, index: int, each: int) -> Verdict:
    """Start ``each`` processes at the same time; the first of them never dies."""
    chance, root = scene.chance("crowd", index), scene.folder("crowd", index)
    method = TRAINED[index % len(TRAINED)]
    whole = scene.whole(method)
    assert whole.result is not None
    go, who, what = root / "go", root / "who", f"{method}, {each} processes"
    ends = [0 if n == 0 or chance.random() > DEADLY else chance.randint(1, whole.result["steps"]) for n in range(each)]
    children = [Child(contend, root / "runs", method, go, who, at) for at in ends]
    for child in children:
        child.hear()
    go.touch()
    verdict = Verdict(each)
    for child in children:
        ended = child.wait()
        if ended.code not in (0, -signal.SIGKILL):
            verdict += unclear(f"{what}: {ended.said[-300:]}")
        elif isinstance(ended.value, tuple) and ended.value[1]:
            verdict += unclear(f"{what}: {ended.value[1][0]}")
    verdict += apart(who.read_text().split("\n"), what) + compare(whole, Seen.of(root / "runs", method), what)
    shutil.rmtree(root)
    return verdict


def apart(lines: list[str], what: str) -> Verdict:
    """Check who worked when: no process continues after another has begun, as each works once."""
    pids = [line.split()[0] for line in lines if line]
    turns = [pid for before, pid in zip(["", *pids], pids, strict=False) if pid != before]
    if not pids:
        return lost(f"{what}: nobody worked")
    return Verdict() if len(turns) == len(set(turns)) else different(f"{what}: two were at work at once")
