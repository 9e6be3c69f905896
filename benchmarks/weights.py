"""What an average of the weights costs: a step of ER with it over one without, at two widths of the ResNet18."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from benchmarks.loop import BATCH, SLICE, cifar
from benchmarks.timing import Line, best_times
from tmln.learner import Learner
from tmln.models import make_model
from tmln.streams import Stream


def steps(stream: Stream, width: int, weights: str) -> Callable[[], None]:
    """Steps in the middle of a second task, without its end."""
    torch.manual_seed(0)
    model = make_model("resnet18", stream.shape, stream.classes, width=width)
    learner = Learner(
        model, "er", weights=weights, batch_size=BATCH, augment=stream.augment, prepare=stream.prepare,
        settings={"replay.fill": "online"},
    )  # fmt: skip
    learner.learn(stream[0].train.subset(torch.arange(500)))
    part = stream[1].train.subset(torch.arange(SLICE))
    return lambda: learner.learn(part, boundary=False, atomic=False)


def lines(widths: tuple[int, ...] = (20, 64), rounds: int = 8) -> Iterator[Line]:
    """The goals: 1.02 at width 20, 1.01 at width 64."""
    stream, goals = cifar(), {20: 1.02, 64: 1.01}
    for width in widths:
        best = best_times({name: steps(stream, width, name) for name in ("last", "average")}, rounds)
        ratio = best["average"] / best["last"]
        yield Line(f"a step with averaged weights / without, width {width}", ratio, goals[width])
