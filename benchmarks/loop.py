"""Compare the learner's loop with a bare one, and with Avalanche where it is installed.

Set TMLN_AVALANCHE to the Python of an environment with avalanche-lib 0.6 to have it measured in the same go, its rounds
between ours: as its documentation has it, and lean (see ``peer_avalanche.py``). Set TMLN_COMPILE=1 to measure
``compile=True`` as well, which takes minutes to warm up. Images are CIFAR-100's where TMLN_DATA has them, else random
ones of the same shape. The allocator is set as ``tmln run`` sets it, for the bare loop too.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.timing import Line, best_times
from tmln.data.reading import DataError
from tmln.experiments.memory_estimate import keep_memory
from tmln.learner import Learner
from tmln.methods.replay import Reservoir
from tmln.models import make_model
from tmln.streams import Stream, make_stream, stream_of_classes

BATCH, SLICE, EPOCHS = 128, 640, 3


def cifar() -> Stream:
    try:
        return make_stream("split-cifar100")
    except DataError:
        x, y = torch.randint(0, 256, (10_000, 3, 32, 32), dtype=torch.uint8), torch.arange(10_000) % 100
        return stream_of_classes((x, y), (x[:500], y[:500]), 10)


def bare_steps(stream: Stream) -> Callable[[], None]:
    """Run ER in the middle of a second task, written out by hand, channels_last."""
    torch.manual_seed(0)
    model = make_model("resnet18", stream.shape, stream.classes, width=20)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, foreach=True)
    memory, noise = Reservoir(500), torch.Generator().manual_seed(0)
    memory.add(*stream[0].train.gather(torch.arange(500)))
    data = stream[1].train
    model.train()

    def run() -> None:
        for rows in torch.randperm(SLICE).split(BATCH):
            (x, y), (old_x, old_y) = data.gather(rows), memory.sample(BATCH)
            inputs = stream.augment(torch.cat([x, old_x]), noise)
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), torch.cat([y, old_y])).backward()
            optimizer.step()

    return run


def learner_steps(stream: Stream, compile: bool = False) -> Callable[[], None]:
    torch.manual_seed(0)
    model = make_model("resnet18", stream.shape, stream.classes, width=20)
    learner = Learner(model, "er", batch_size=BATCH, augment=stream.augment, prepare=stream.prepare, compile=compile)
    learner.learn(stream[0].train.subset(torch.arange(500)))
    part = stream[1].train.subset(torch.arange(SLICE))
    return lambda: learner.learn(part, boundary=True)


def digits_bare(stream: Stream, replay: bool) -> Callable[[], None]:
    def run() -> None:
        torch.manual_seed(0)
        model = make_model("mlp", stream.shape, stream.classes)
        memory = Reservoir(500)
        for task in stream:
            optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, foreach=True)
            x, y = task.train.x, task.train.y
            for _ in range(EPOCHS):
                for rows in torch.randperm(len(x)).split(32):
                    inputs, labels = x[rows], y[rows]
                    if replay and memory:
                        old = memory.sample(32)
                        inputs, labels = torch.cat([inputs, old[0]]), torch.cat([labels, old[1]])
                    optimizer.zero_grad()
                    F.cross_entropy(model(stream.prepare(inputs)), labels).backward()
                    optimizer.step()
            memory.add(x, y)
            _test(model, stream)

    return run


def _test(model: nn.Module, stream: Stream) -> list[Tensor]:
    model.eval()
    with torch.no_grad():
        found = [(model(stream.prepare(t.x)).argmax(1) == t.y).float().mean() for t in stream.tests]
    model.train()
    return found


def digits_learner(stream: Stream, method: str) -> Callable[[], None]:
    def run() -> None:
        torch.manual_seed(0)
        model = make_model("mlp", stream.shape, stream.classes)
        learner = Learner(model, method, batch_size=32, augment=stream.augment, prepare=stream.prepare)
        for task in stream:
            learner.learn(task.train, EPOCHS, classes=task.classes)
            for test in stream.tests:
                learner.evaluate(test)

    return run


def flat_in_tasks() -> Line:
    """The last of a hundred tasks against the second: steps of equal size, the memory full from the first on."""
    torch.manual_seed(0)
    learner = Learner(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)), "tmln", batch_size=64)
    x, y = torch.randn(2048, 256), torch.randint(10, (2048,))
    best: list[float] = []
    for _ in range(100):
        times = []
        last = time.perf_counter()

        def note(epoch: int, step: int, loss: float) -> None:
            nonlocal last
            now = time.perf_counter()
            times.append(now - last)  # noqa: B023
            last = now

        learner.learn((x, y), on_step=note)
        best.append(sorted(times)[len(times) // 4])
    return Line("a step of the last tasks / of the first, of 100", min(best[90:]) / min(best[1:11]), 1.03)


class Peer:
    """Avalanche at the same work, in a process that does a round when called."""

    def __init__(self, python: str, *words: str) -> None:
        script = Path(__file__).with_name("peer_avalanche.py")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([python, script, *words], text=True, **pipes)  # type: ignore[call-overload]

    def __call__(self) -> None:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        if not self.process.stdout.readline():
            raise RuntimeError(f"Avalanche's process ended with code {self.process.wait()}")


@contextmanager
def peers(kind: str) -> Iterator[dict[str, Callable[[], None]]]:
    """Return Avalanche as it comes and lean; nothing where there is no environment for it."""
    python = os.environ.get("TMLN_AVALANCHE")
    made = {"Avalanche": Peer(python, kind), "Avalanche, lean": Peer(python, kind, "lean")} if python else {}
    try:
        yield dict(made)
    finally:
        for peer in made.values():
            peer.process.kill()
            peer.process.wait()


def lines() -> Iterator[Line]:
    keep_memory()
    stream = cifar()
    ours = {"bare": bare_steps(stream), "tmln": learner_steps(stream)}
    if os.environ.get("TMLN_COMPILE"):
        ours["compiled"] = learner_steps(stream, compile=True)
    with peers("cifar") as others:
        best = best_times({**ours, **others}, rounds=8)
    what = "ER, CIFAR-100, width 20: throughput of the learner"
    yield Line(f"{what} / a bare loop", best["bare"] / best["tmln"], 0.97, True)
    if "compiled" in best:
        yield Line(f"{what}, compiled / eager", best["tmln"] / best["compiled"], 1.15, True)
    for name in others:
        lean = "lean" in name
        yield Line(f"{what} / {name}", best[name] / best["tmln"], None if lean else 1.5, True)
        if "compiled" in best:
            yield Line(f"{what}, compiled / {name}", best[name] / best["compiled"], None if lean else 1.85, True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    digits = make_stream("split-digits")
    for method in ("naive", "er"):
        runs = {"bare": digits_bare(digits, method == "er"), "tmln": digits_learner(digits, method)}
        with peers(f"digits-{method}") as others:
            best = best_times({**runs, **others}, rounds=12)
        yield Line(f"{method}, Split-Digits: the learner / a bare loop", best["bare"] / best["tmln"], 0.95, True)
        for name in others:
            goal = None if "lean" in name else 3.5
            yield Line(f"{method}, Split-Digits: the learner / {name}", best[name] / best["tmln"], goal, True)
    yield flat_in_tasks()
    torch.set_num_threads(threads)
