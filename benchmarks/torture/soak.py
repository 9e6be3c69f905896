"""Learn a thousand tasks: every loss is a number, and the memory stays as it is."""

from __future__ import annotations

import gc
import os
import warnings
from pathlib import Path

import torch

from benchmarks.torture.reached import RECIPES, Learner, encode, make_model, make_stream
from benchmarks.torture.scene import Scene
from benchmarks.torture.verdict import Verdict, different, lost
from benchmarks.torture.warm import Tell, call

METHODS = tuple(name for name in RECIPES if not RECIPES[name].joint)  # joint keeps all data: it grows by its nature
SAMPLES = 32  # of a task
MOST_GROWTH = 16 << 20  # bytes of the process from an early task to the last: an allocator's fragments, no leak


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def state_bytes(learner: Learner) -> int:
    return sum(tensor.nbytes for tensor in encode(learner.state_dict())[1].values())


def soak(tell: Tell, method: str, tasks: int, seed: int) -> Verdict:
    """Learn digits under another permutation of their pixels in every task, at the method's own settings."""
    warnings.simplefilter("ignore")
    torch.manual_seed(seed)
    digits = make_stream("split-digits")
    data = torch.cat([task.train.x for task in digits]), torch.cat([task.train.y for task in digits])
    learner = Learner(make_model("mlp", digits.shape, digits.classes), method, prepare=digits.prepare, seed=seed)
    generator, early, losses = torch.Generator().manual_seed(seed), max(1, tasks // 4), [0.0]
    size = memory = 0
    for task in range(tasks):
        rows = torch.randint(len(data[1]), (SAMPLES,), generator=generator)
        pixels = torch.randperm(data[0][0].numel(), generator=generator)
        x = data[0][rows].flatten(1)[:, pixels].reshape(data[0][rows].shape)
        try:
            learner.learn((x, data[1][rows]), classes=range(10), on_step=lambda epoch, step, loss: losses.append(loss))
        except FloatingPointError as error:
            return Verdict(task + 1) + lost(f"{method} diverges at task {task + 1}: {error}")
        if task + 1 == early:
            size, memory = state_bytes(learner), resident()
    verdict = Verdict(tasks)
    if not all(torch.isfinite(value).all() for value in learner.model.state_dict().values()):
        verdict += lost(f"{method}: weights that are no numbers")
    if state_bytes(learner) != size:
        verdict += different(f"{method}: its state grew from {size:,} to {state_bytes(learner):,} bytes")
    elif (grown := resident() - memory) > MOST_GROWTH:
        verdict += different(f"{method}: the process grew by {grown:,} bytes")
    return verdict


def trial(scene: Scene, index: int, each: int) -> Verdict:
    method = METHODS[index % len(METHODS)]
    ended = call(soak, method, each, scene.seed)
    return ended.value if isinstance(ended.value, Verdict) else lost(f"{method}: {ended.code} {ended.said[-500:]}")
