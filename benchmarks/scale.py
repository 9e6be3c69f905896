"""Fit the cost model of benchmarks.costs on small networks, and check it on larger ones.

    python -m benchmarks.scale            # measures, fits, checks and writes benchmarks/costs.json

Time is that of the process, not of the clock, so that other work on the machine counts little; of the network and the
disk it is the best of several tries by the clock.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from scipy.optimize import nnls

from benchmarks.costs import FILE, WEIGHT, Rates
from benchmarks.timing import Line
from tmln.executors.config import work_on
from tmln.experiments.config import canonical
from tmln.experiments.machine import machine
from tmln.experiments.memory_estimate import BACKWARD
from tmln.learner import Learner
from tmln.learner.forward import bytes_per_sample
from tmln.models import make_model

STEPS = 12
# Model, its options, image side, batch (as many are replayed); the second list is held out, and larger.
SMALL = [
    ("mlp", {"hidden": 64}, 8, 32),
    ("mlp", {"hidden": 256}, 8, 32),
    ("mlp", {"hidden": 512}, 8, 128),
    ("mlp", {"hidden": 1024}, 16, 32),
    ("mlp", {"hidden": 1024}, 8, 256),
    ("resnet18", {"width": 4}, 16, 16),
    ("resnet18", {"width": 8}, 16, 32),
    ("resnet18", {"width": 4}, 32, 16),
    ("resnet18", {"width": 8}, 32, 16),
    ("resnet18", {"width": 16}, 16, 32),
]
LARGER = [
    ("mlp", {"hidden": 2048}, 16, 128),
    ("mlp", {"hidden": 4096}, 16, 64),
    ("mlp", {"hidden": 3072}, 16, 256),
    ("resnet18", {"width": 16}, 32, 32),
    ("resnet18", {"width": 20}, 32, 32),
    ("resnet18", {"width": 24}, 32, 16),
]
PARTS = {"fitted": SMALL, "held out": LARGER}
GOAL = 0.5  # of the mean relative error on what was held out


@dataclass(frozen=True)
class Point:
    """A measurement: what was trained, and the seconds of a step and of a boundary."""

    name: str
    conv: bool
    parameters: int
    work: float
    rows: int
    activations: int
    modules: int
    fisher: int
    step: float
    boundary: float

    def of_step(self) -> list[float]:
        return self._terms(self.rows)

    def of_boundary(self) -> list[float]:
        return self._terms(self.fisher)

    def _terms(self, samples: int) -> list[float]:
        passes = 3 * self.work * samples
        weights = WEIGHT * self.parameters
        return [self.modules, passes * (not self.conv), passes * self.conv, self.activations * samples, weights]


def measured(model: str, options: dict[str, Any], side: int, batch: int) -> Point:
    torch.manual_seed(0)
    many = STEPS * batch
    x, y = torch.randint(0, 256, (many, 3, side, side), dtype=torch.uint8), torch.randint(0, 10, (many,))
    network = make_model(model, (3, side, side), 10, **options)
    learner = Learner(network, "tmln", lr=1e-4, batch_size=batch, prepare=lambda x: x.float() / 255)
    at: list[float] = []
    learner.learn((x, y), atomic=False, hold_out=0)  # to warm up, and so that there is a memory to replay
    begin = time.process_time()
    learner.learn((x, y), atomic=False, hold_out=0, on_step=lambda *step: at.append(time.process_time()))
    end = time.process_time()
    memory = learner.replay.memory
    held = len(memory) if memory is not None else many
    step = float(np.median(np.diff([begin, *at])[2:]))
    parameters = sum(p.numel() for p in network.parameters())
    name = f"{model} {canonical(options)} {side}x{side}, batch {batch}"
    work = sum(work_on(model, canonical(options), side))
    rows = learner.last_batch
    kept = (
        int(BACKWARD * bytes_per_sample(learner.trained.masked, x[:2].float())) + 11 * x[0].numel()
    )  # as a footprint has it
    modules = sum(1 for module in network.modules() if not list(module.children()))
    return Point(name, model != "mlp", parameters, work, rows, kept, modules, held, step, end - at[-1])


def fitted(rows: list[list[float]], seconds: list[float]) -> list[float]:
    """Fit by the least sum of squared relative errors, no coefficient below zero."""
    table, wanted = np.array(rows), np.array(seconds)
    scale = table.max(axis=0)
    scale[scale == 0] = 1.0
    found, _ = nnls(table / scale / wanted[:, None], np.ones(len(wanted)))
    return [float(value) for value in found / scale]


def errors(points: list[Point], step: list[float], boundary: list[float]) -> tuple[list[float], list[float]]:
    """Return the relative error of each point."""
    steps = [float(np.dot(p.of_step(), step)) / p.step - 1 for p in points]
    return steps, [float(np.dot(p.of_boundary(), boundary)) / p.boundary - 1 for p in points]


def per_byte() -> float:
    """Seconds of a byte that is drawn from a memory."""
    from tmln.methods.replay import Reservoir

    memory = Reservoir(2000, seed=0)
    memory.add(torch.zeros(2000, 3, 32, 32, dtype=torch.uint8), torch.zeros(2000, dtype=torch.long))
    begin = time.process_time()
    for _ in range(50):
        memory.sample(128)
    return (time.process_time() - begin) / (50 * 128 * 3 * 32 * 32)


def _rank(rank: int, port: int, size: int, queue: Any) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    values, best = torch.zeros(size // 4), float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        dist.all_reduce(values)
        best = min(best, time.perf_counter() - begin)
    dist.destroy_process_group()
    if rank == 0:
        queue.put(size / best)


def bandwidth(size: int = 1 << 24) -> float:
    """Bytes a second of an all-reduce between two processes, by gloo: 2 (R - 1)/R of each byte is sent."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    both = [context.Process(target=_rank, args=(rank, port, size, queue)) for rank in range(2)]
    for process in both:
        process.start()
    found = float(queue.get())
    for process in both:
        process.join()
    return found


def disk(size: int = 1 << 26) -> float:
    """Bytes a second, written and synced."""
    best = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(3):
            begin = time.perf_counter()
            with (Path(folder) / "file").open("wb") as file:
                file.write(bytes(size))
                file.flush()
                os.fsync(file.fileno())
            best = min(best, time.perf_counter() - begin)
    return size / best


def measure() -> dict[str, Any]:
    """Measure all points, and what is not found by a fit."""
    torch.set_num_threads(1)
    points = {part: [asdict(_said(measured(*what))) for what in whats] for part, whats in PARTS.items()}
    rest = {"sample": per_byte(), "bandwidth": bandwidth(), "disk": disk()}
    return {"points": points, "rest": rest, "machine": machine(), "load": os.getloadavg()[0]}


def concluded(said: dict[str, Any]) -> dict[str, Any]:
    """Return the rates fitted on the small networks, and the errors on all."""
    parts = {part: [Point(**point) for point in points] for part, points in said["points"].items()}
    small = parts["fitted"]
    step = fitted([p.of_step() for p in small], [p.step for p in small])
    boundary = fitted([p.of_boundary() for p in small], [p.boundary for p in small])
    names = ("call", "dense", "conv", "activation", "weights")
    ends = ("fisher_call", "fisher_dense", "fisher_conv", "fisher_activation", "boundary")
    rates = Rates(**dict(zip(names, step, strict=True)), **dict(zip(ends, boundary, strict=True)), **said["rest"])
    checks = {}
    for part, points in parts.items():
        found = errors(points, step, boundary)
        checks[part] = {
            what: {p.name: round(e, 3) for p, e in zip(points, each, strict=True)}
            for what, each in zip(("step", "boundary"), found, strict=True)
        }
    return {**said, "rates": asdict(rates), "errors": checks}


def _said(point: Point) -> Point:
    print(f"{point.name}: a step {1e3 * point.step:.2f} ms, a boundary {1e3 * point.boundary:.1f} ms", file=sys.stderr)
    return point


def lines() -> Iterator[Line]:
    """The errors on what was held out, in the kept file: nothing is measured anew here."""
    said = json.loads(FILE.read_text(encoding="utf-8"))["errors"]["held out"]
    for what, found in said.items():
        mean = float(np.mean(np.abs(list(found.values()))))
        yield Line(f"cost model, a {what} of larger networks: mean relative error", mean, GOAL)


if __name__ == "__main__":
    # --again: the fit anew, of what was measured before
    found = concluded(json.loads(FILE.read_text(encoding="utf-8")) if "--again" in sys.argv else measure())
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: found[key] for key in ("rates", "errors")}, indent=1))
