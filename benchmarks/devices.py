"""Compare one run over several processes with one: a single device, steps, and a boundary.

Two processes of one thread each take turns with one of two threads. What is not at work waits without computing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.loop import BATCH, SLICE, cifar
from benchmarks.timing import Line, best_times
from tmln.curvature import diagonal_fisher
from tmln.distributed.process_group import Group, ranks_of
from tmln.experiments.memory_estimate import keep_memory
from tmln.learner import Learner
from tmln.models import make_model
from tmln.optim import TMLN
from tmln.streams import Stream

ROUNDS, SAMPLES, CHUNK = 5, 512, 128
ONE, TWO, HERE, BOTH = "one process, two threads", "two processes", "boundary, one rank", "boundary, two ranks"


def network(stream: Stream) -> nn.Module:
    """Make a network without batch statistics, which would be a message a layer."""
    torch.manual_seed(0)
    return make_model("cnn", stream.shape, stream.classes, width=64)


def steps(stream: Stream, fabric: Any = None) -> Callable[[], None]:
    """Run steps of ER in the middle of a second task."""
    given: dict[str, Any] = {"batch_size": BATCH, "augment": stream.augment, "prepare": stream.prepare}
    learner = Learner(network(stream), "er", fabric=fabric, **given)
    learner.learn(stream[0].train.subset(torch.arange(500)))
    part = stream[1].train.subset(torch.arange(SLICE))
    return lambda: learner.learn(part)


def boundary(stream: Stream, together: bool) -> Callable[[], None]:
    """Compute a boundary with F of 512 samples, after a step, without which there is no path."""
    model = network(stream)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-4)
    optimizer = TMLN(model.parameters(), 0.01)
    x, y = stream[0].train.gather(torch.arange(SAMPLES))
    group: Group = None if together else "local"
    x, rows = stream.prepare(x), ranks_of(group).rows(CHUNK)
    mine = [(a[rows], b[rows]) for a, b in zip(x.split(CHUNK), y.split(CHUNK), strict=True)]

    def run() -> None:
        optimizer.step()
        fisher = diagonal_fisher(model, mine, progress=False, group=group)
        optimizer.consolidate(fisher, group=group)

    return run


def fabric_of(count: int, rank: int = 0) -> Any:
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment

    if count == 1:
        return Fabric(accelerator="cpu", devices=1)
    os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0", WORLD_SIZE=str(count))
    made = Fabric(accelerator="cpu", devices=count, strategy="ddp", plugins=LightningEnvironment())
    made.launch()
    return made


def rank_of_two(rank: int, meeting: str, result: str) -> None:
    """What each of two processes does: its turns with the other, and, the first one, those without."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    keep_memory()
    stream = cifar()
    contenders = {TWO: steps(stream, fabric_of(2, rank)), BOTH: boundary(stream, together=True)}
    alone = {ONE: steps(stream), HERE: boundary(stream, together=False)} if rank == 0 else {}
    best: dict[str, float] = {}
    for turn in range(ROUNDS + 1):
        for name, run in {**contenders, **dict.fromkeys((ONE, HERE))}.items():
            dist.barrier()
            todo = run or alone.get(name)
            torch.set_num_threads(2 if name == ONE else 1)
            begin = time.perf_counter()
            if todo is not None:
                todo()
            dist.barrier()
            if turn:  # the first one warms up
                best[name] = min(best.get(name, float("inf")), time.perf_counter() - begin)
    if rank == 0:
        Path(result).write_text(json.dumps(best))
    dist.destroy_process_group()


def of_two() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "best"
        command = [sys.executable, "-m", "benchmarks.devices"]
        ranks = [subprocess.Popen([*command, str(rank), f"{folder}/meeting", str(result)]) for rank in (0, 1)]
        assert [rank.wait() for rank in ranks] == [0, 0]
        found: dict[str, float] = json.loads(result.read_text())
        return found


def lines() -> Iterator[Line]:
    keep_memory()
    stream = cifar()
    best = best_times({"plain": steps(stream), "fabric": steps(stream, fabric_of(1))}, 2 * ROUNDS)
    yield Line("the learner on Fabric's one device / without", best["fabric"] / best["plain"], 1.01)
    two = of_two()
    yield Line("two processes of one thread / one of two: throughput", two[ONE] / two[TWO], 0.9, at_least=True)
    yield Line("boundary (Fisher, consolidate) of two ranks / one", two[BOTH] / two[HERE], 0.6)


if __name__ == "__main__":
    rank_of_two(int(sys.argv[1]), sys.argv[2], sys.argv[3])
