"""Compare TMLN's step with torch's foreach SGD, alone and within a whole training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.timing import Line, best_times
from tmln.models import make_model
from tmln.optim import TMLN


def training_step(
    width: int, make: Callable[[nn.Module], torch.optim.Optimizer], x: Tensor, y: Tensor
) -> Callable[[], None]:
    torch.manual_seed(0)
    model = make_model("resnet18", (3, 32, 32), 100, width=width)
    optimizer = make(model)

    def run() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return run


def step_alone(make: Callable[[nn.Module], torch.optim.Optimizer]) -> Callable[[], None]:
    model = make_model("resnet18", (3, 32, 32), 100, width=64)
    optimizer = make(model)
    for p in model.parameters():
        p.grad = torch.full_like(p, 1e-6)

    def run() -> None:
        for _ in range(5):
            optimizer.step()

    return run


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)


def tmln(model: nn.Module) -> torch.optim.Optimizer:
    return TMLN(model.parameters(), lr=1e-5)


def lines() -> Iterator[Line]:
    best = best_times({"sgd": step_alone(sgd), "tmln": step_alone(tmln)}, rounds=20)
    yield Line("TMLN.step() / SGD(foreach).step(), 11M parameters", best["tmln"] / best["sgd"], 2.4)
    x = torch.randn(128, 3, 32, 32).to(memory_format=torch.channels_last)
    y = torch.randint(100, (128,))
    for width, rounds in ((20, 25), (64, 20)):
        runs = {"sgd": training_step(width, sgd, x, y), "tmln": training_step(width, tmln, x, y)}
        best = best_times(runs, rounds)
        yield Line(f"training step, ResNet18 width {width}: TMLN / SGD", best["tmln"] / best["sgd"], 1.01)
