"""Kill runs of every method at a step, then at a time of the clock, then let them end."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from benchmarks.torture.reached import StepInfo
from benchmarks.torture.scene import TRAINED, Scene, newest, work
from benchmarks.torture.verdict import Verdict, lost
from benchmarks.torture.warm import Child, Tell, call

LONGEST = 0.4  # seconds until the second kill: more than the rest of a run takes on an idle machine


def killed_at(tell: Tell, root: Path, method: str, at: int) -> int:
    def step(info: StepInfo) -> None:
        if info.step == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return work(tell, root, method, step)


def trial(scene: Scene, index: int, each: int) -> Verdict:
    method, chance, root = TRAINED[index % len(TRAINED)], scene.chance("kills", index), scene.folder("kills", index)
    whole = scene.whole(method)
    assert whole.result is not None
    at, injected = chance.randint(1, whole.result["steps"]), 0
    what = f"{method}, killed at step {at}"
    ended = call(killed_at, root, method, at)
    if not ended.killed:
        return lost(f"{what}: it was not, but {ended.code}: {ended.said[-300:]}")
    injected += 1
    for _ in range(each):
        before, child = newest(root, method), Child(work, root, method)
        child.hear()
        pause = chance.uniform(0, LONGEST)
        time.sleep(pause)
        child.signal(signal.SIGKILL)
        ended = child.wait()
        what += f" and {pause:.3f} s after it went on"
        if not ended.killed:
            break
        injected += 1
    else:
        before, ended = newest(root, method), call(work, root, method)
    verdict = Verdict(injected) + scene.gone_on(ended, root, method, before, what)
    shutil.rmtree(root)
    return verdict
