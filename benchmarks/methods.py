"""Compare a training step of each method with naive SGD at the same total batch (ResNet18, width 20)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.timing import Line, best_times
from tmln.learner import Learner
from tmln.learner.loop import take_step
from tmln.methods import TaskContext
from tmln.models import make_model

BATCH = 128
# method: samples it replays, steps measured at a time (K-FAC: a whole period of its factor updates), and the goal
# against naive at the same total batch
GOALS = {
    "ewc++": (0, 1, 1.03),
    "upgd": (0, 1, 1.06),
    "rwalk": (BATCH, 1, 1.04),
    "er": (BATCH, 1, 1.02),
    "ocar": (BATCH, 10, 1.6),
    "tmln-kfac, running": (BATCH, 10, 1.6),
    "tmln-kfac, boundary": (BATCH, 10, 1.6),
}
FACTORED = [method for method in GOALS if method.startswith("tmln-kfac")]


def steps(method: str, batch: int, count: int, x: Tensor, y: Tensor) -> Callable[[], None]:
    """Run ``count`` training steps in the middle of a second task."""
    torch.manual_seed(0)
    model = make_model("resnet18", (3, 32, 32), 100, width=20)
    method, _, factors = method.partition(", ")
    settings = {"step.factors": factors} if factors else None
    learner = Learner(model, method, lr=1e-3, batch_size=batch, settings=settings)

    def context(index: int) -> TaskContext:
        def once() -> Iterator[tuple[Tensor, Tensor]]:
            yield x, y

        return TaskContext(index, learner.model, (0,), (1,), learner.step.effective_lr, once, learner.prepare)

    parts = (learner.replay, learner.penalty, learner.step)
    for part in parts:
        part.begin(context(0))
    take_step(learner, x[:batch], y[:batch], context(0), 0, 0)
    for part in parts:
        part.end(context(0))
    for part in parts:
        part.begin(context(1))

    def run() -> None:
        for number in range(count):
            take_step(learner, x[:batch], y[:batch], context(1), 1, number)

    return run


def lines() -> Iterator[Line]:
    x = torch.rand(2 * BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    y = torch.randint(100, (2 * BATCH,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # strengths are not tuned for random images
        for methods in (("ewc++", "upgd"), ("rwalk", "er"), ("ocar", *FACTORED)):
            replayed, count, _ = GOALS[methods[0]]
            runs = {"naive": steps("naive", BATCH + replayed, count, x, y)}
            runs |= {method: steps(method, BATCH, count, x, y) for method in methods}
            best = best_times(runs, rounds=3 if count > 1 else 20)
            for method in methods:
                what = f"{method} / naive, {BATCH} + {replayed} samples a step"
                yield Line(what, best[method] / best["naive"], GOALS[method][2])
