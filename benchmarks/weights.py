"""Measure what an average of the weights costs: a step of ER with it over the same step without.

Both are taken from the same steps: two runs side by side differ by more than the hundredth that is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import torch

from benchmarks.loop import BATCH, cifar
from benchmarks.timing import Line
from tmln.learner import Learner
from tmln.models import make_model
from tmln.streams import Stream


def ratio(stream: Stream, width: int, steps: int) -> float:
    """The median over steps in the middle of a second task, the first of which copies the weights, left out."""
    torch.manual_seed(0)
    model = make_model("resnet18", stream.shape, stream.classes, width=width)
    learner = Learner(
        model, "er", weights="average", batch_size=BATCH, augment=stream.augment, prepare=stream.prepare,
        settings={"replay.fill": "online"},
    )  # fmt: skip
    learner.learn(stream[0].train.subset(torch.arange(2 * BATCH)))
    average, spent, ended = learner.weights.after_step, list[float](), list[float]()

    def timed() -> None:
        begin = time.perf_counter()
        average()
        spent.append(time.perf_counter() - begin)

    setattr(learner.weights, "after_step", timed)  # noqa: B010
    part = stream[1].train.subset(torch.arange((steps + 1) * BATCH))
    learner.learn(part, boundary=False, atomic=False, on_step=lambda *_: ended.append(time.perf_counter()))
    whole = [after - before for before, after in pairwise(ended)]
    return sorted(w / (w - s) for w, s in zip(whole, spent[1:], strict=True))[len(whole) // 2]


def lines(steps: tuple[tuple[int, int], ...] = ((20, 16), (64, 5))) -> Iterator[Line]:
    """The goals: 1.02 at width 20, 1.01 at width 64."""
    stream, goals = cifar(), {20: 1.02, 64: 1.01}
    for width, count in steps:
        yield Line(f"a step with averaged weights / without, width {width}", ratio(stream, width, count), goals[width])
