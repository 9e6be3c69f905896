"""A stream without tasks: the digits drift past, round and round; TMLN with replay beside SGD with replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Optimizer

import tmln
from tmln.streams import make_stream

Make = Callable[[Iterator[nn.Parameter]], Optimizer]


def accuracy(make: Make, seed: int, rounds: int, every: int | None = None) -> float:
    """A sample of digit c comes at c + N(0, 1) of each round; batches of 10, as many from a memory of 200."""
    stream = make_stream("split-digits")
    x = torch.cat([stream.prepare(task.train.x) for task in stream])
    y = torch.cat([task.train.y for task in stream])
    generator = torch.Generator().manual_seed(seed)
    order = torch.cat([(y + torch.randn(len(y), generator=generator)).argsort() for _ in range(rounds)])
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer, memory = make(model.parameters()), tmln.Reservoir(200, seed=seed)
    boundaries = None if every is None else tmln.Boundaries(optimizer, memory, every=every, model=model)
    for rows in order.split(10):
        inputs, labels = x[rows], y[rows]
        if len(memory):
            old = memory.sample(min(len(memory), 10))
            inputs, labels = torch.cat([inputs, old[0]]), torch.cat([labels, old[1]])
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        memory.add(x[rows], y[rows])
        if boundaries is not None:
            boundaries.step()
    with torch.no_grad():
        right = [(model(stream.prepare(test.x)).argmax(1) == test.y).float() for test in stream.tests]
    return float(torch.cat(right).mean())


def shielded(lr: float, decay: float) -> Make:
    return lambda weights: tmln.TMLN(weights, lr=lr, decay=decay)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the shield is nil")
def test_tmln_is_not_worse_than_sgd() -> None:
    """Each at its rate chosen on held-out training data (docs/methods.md, where ten other seeds are measured)."""
    sgd = accuracy(lambda weights: torch.optim.SGD(weights, 0.5), 10, rounds=3)
    assert accuracy(shielded(0.05, 0.5), 10, rounds=3, every=20) > sgd - 0.02


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the shield is nil")
def test_frequent_boundaries_need_a_shield_that_fades() -> None:
    """A boundary every five steps: S-bar that keeps all of it stops the learning."""
    kept, fading = (accuracy(shielded(0.01, decay), 20, rounds=2, every=5) for decay in (1.0, 0.5))
    assert fading > kept + 0.03
