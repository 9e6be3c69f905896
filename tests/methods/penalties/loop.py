"""The training loop as a learner runs it, and two tasks small enough for it, for the tests of penalties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.methods import Batch, Penalty, TaskContext

Task = tuple[Tensor, Tensor]


class Net(nn.Module):
    """With batch norm, dropout, a frozen layer and one that no batch ever reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 8))
        self.head = nn.Linear(8, 6)
        self.unreached = nn.Linear(2, 2)
        self.body[4].requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.body(x))
        return output


def make_net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net()


def make_tasks(count: int = 3, size: int = 12) -> list[Task]:
    """Task k has the classes 2k and 2k+1."""
    generator = torch.Generator().manual_seed(1)
    centres = 2 * torch.randn(2 * count, 6, generator=generator)
    tasks = []
    for index in range(count):
        y = torch.arange(size) % 2 + 2 * index
        tasks.append((centres[y] + 0.5 * torch.randn(size, 6, generator=generator), y))
    return tasks


def make_context(model: nn.Module, index: int, task: Task, rate: float = 0.05) -> TaskContext:
    x, y = task

    def samples() -> Iterator[Task]:
        return iter(zip(x.split(5), y.split(5), strict=True))

    known = tuple(range(2 * index))
    return TaskContext(index, model, (2 * index, 2 * index + 1), known, rate, samples, lambda x: x)


def one_step(part: Penalty[Any], model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    output = model(x)
    loss = F.cross_entropy(output, y)
    extra = part.loss(model, Batch(x, y, len(x)), output)
    (loss if extra is None else loss + extra).backward()
    part.after_backward()
    part.add_gradient()
    optimizer.step()
    part.after_step()


def run_steps(
    part: Penalty[Any], model: nn.Module, optimizer: torch.optim.Optimizer, task: Task, steps: Sequence[int]
) -> None:
    """Each step on its own third of the task, with its own dropout: a step can be run again elsewhere."""
    x, y = task
    for step in steps:
        torch.manual_seed(step)
        one_step(part, model, optimizer, x[step % 3 :: 3], y[step % 3 :: 3])


def train(part: Penalty[Any], model: nn.Module, tasks: Sequence[Task], steps: int = 7, rate: float = 0.05) -> None:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate, momentum=0.5)
    for index, task in enumerate(tasks):
        context = make_context(model, index, task, rate)
        part.begin(context)
        run_steps(part, model, optimizer, task, range(steps))
        part.end(context)


def same(a: Any, b: Any) -> bool:
    """Bit for bit, through containers."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


class Numbers(nn.Module):
    """Bare weights in float64, for steps by hand."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(values, dtype=torch.float64))

    def walk(self, part: Penalty[Any], gradient: Sequence[float], step: Sequence[float]) -> Tensor:
        """A plain gradient, then the given step; what the part made of the gradient."""
        self.theta.grad = torch.tensor(gradient, dtype=torch.float64)
        part.after_backward()
        part.add_gradient()
        found: Tensor = self.theta.grad
        with torch.no_grad():
            self.theta.add_(torch.tensor(step, dtype=torch.float64))
        part.after_step()
        return found

    def context(self, index: int = 0, rate: float = 0.0) -> TaskContext:
        return TaskContext(index, self, (0,), (), rate, lambda: iter(()), lambda x: x)


class Closing(nn.Module):
    """A parent of a model in which the classes that have not been met are closed: -inf is filled in, or added."""

    def __init__(self, model: nn.Module, classes: Sequence[int], added: bool = False) -> None:
        super().__init__()
        self.inner, self.classes, self.added = model, list(classes), added

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x)
        closed = torch.ones(output.shape[1], dtype=torch.bool)
        closed[self.classes] = False
        if self.added:
            return output + torch.zeros(output.shape[1]).masked_fill(closed, -torch.inf)
        return output.masked_fill(closed, -torch.inf)


def close(actual: Tensor, expected: Sequence[float], tolerance: float = 1e-9) -> bool:
    return torch.allclose(actual.detach().double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=tolerance)
