"""The learner on data of your own: here random tensors, two classes a task, and a save between two of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import tmln


def images(first: int) -> tuple[Tensor, Tensor]:
    """64 bright or dark 16x16 images of classes ``first`` and ``first + 1``; yours come from disk."""
    y = torch.randint(2, (64,)) + first
    x = torch.randint(0, 60, (64, 3, 16, 16)) + 40 * y[:, None, None, None]
    return x.clamp(0, 255).to(torch.uint8), y


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128, 4),
    )


def main() -> list[dict[str, float]]:
    torch.manual_seed(0)
    tasks = [images(0), images(2)]
    learner = tmln.Learner(network(), method="tmln", batch_size=16, seed=0)
    learner.learn(TensorDataset(*tasks[0]), epochs=20)
    with tempfile.TemporaryDirectory() as folder:  # next week, in another process
        learner.save(Path(folder) / "model.tmln")
        learner = tmln.Learner.load(Path(folder) / "model.tmln", network())
    learner.learn(TensorDataset(*tasks[1]), epochs=20)
    found = [learner.evaluate(task) for task in tasks]
    print("accuracy on each task:", ", ".join(f"{100 * f['accuracy']:.0f}%" for f in found))
    return found


if __name__ == "__main__":
    main()
