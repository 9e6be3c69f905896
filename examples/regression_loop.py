"""TMLN on a regression: the squared loss, its Fisher, and forgetting measured by R^2."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import tmln

TASKS, SAMPLES = 4, 400


def make_task(index: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return noisy values of one curve, each task on its own interval."""
    drawn = torch.Generator().manual_seed(seed)
    x = index / TASKS + torch.rand(SAMPLES, 1, generator=drawn) / TASKS
    return x, torch.sin(6 * x) + 0.05 * torch.randn(SAMPLES, 1, generator=drawn)


def score(model: torch.nn.Module, x: Tensor, y: Tensor) -> float:
    """Return R^2 = 1 - MSE / variance: 1 is perfect, 0 is as good as the mean of y."""
    with torch.no_grad():
        return float(1 - F.mse_loss(model(x), y) / y.var(unbiased=False))


def learn_all(capacity: int, epochs: int = 40) -> list[list[float]]:
    """Return R^2 on each task after each task, with a memory of this many samples."""
    torch.manual_seed(0)
    width = 64
    model = torch.nn.Sequential(
        torch.nn.Linear(1, width), torch.nn.Tanh(), torch.nn.Linear(width, width), torch.nn.Tanh(),
        torch.nn.Linear(width, 1),
    )  # fmt: skip
    optimizer = tmln.TMLN(model.parameters(), lr=0.01, momentum=0.9)
    memory = tmln.Reservoir(capacity)
    matrix = []
    for index in range(TASKS):
        data, values = make_task(index, seed=index)
        for _ in range(epochs):
            for rows in torch.randperm(SAMPLES).split(20):
                x, y = data[rows], values[rows]
                if memory:
                    old_x, old_y = memory.sample(len(x))
                    x, y = torch.cat([x, old_x]), torch.cat([y, old_y])
                optimizer.zero_grad()
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        memory.add(data, values)
        batches = memory.batches(100) if memory else [(data, values)]
        optimizer.consolidate(tmln.diagonal_fisher(model, batches, log_likelihood="gaussian"))
        matrix.append([score(model, *make_task(j, seed=100 + j)) for j in range(TASKS)])
    return matrix


def main() -> list[float]:
    for capacity in (0, 200):
        matrix = learn_all(capacity)
        text = ", ".join(f"{value:.2f}" for value in matrix[-1])
        print(f"memory of {capacity}: R^2 on each task {text}; forgetting {tmln.metrics.forgetting(matrix):.2f}")
    return matrix[-1]


if __name__ == "__main__":
    main()
