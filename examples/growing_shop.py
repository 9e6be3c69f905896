"""A shop whose classes grow over four weeks, the last from another camera: learned, judged, taken back."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import tmln

WEEKS = {"week1": ("bee", "owl"), "week2": ("ant", "owl"), "week3": ("cat",), "week4": ("ant", "bee", "cat", "owl")}
LIT = {"ant": (0, 6), "bee": (6, 0), "cat": (6, 6), "owl": (0, 0)}  # where the pictures of a class are bright


def pictures(folder: Path, name: str, light: int, count: int = 30) -> None:
    """Made ones; yours come from a camera."""
    (folder / name).mkdir(parents=True)
    noise, (row, column) = np.random.RandomState(len(folder.name) + light), LIT[name]
    for number in range(count):
        pixels = noise.randint(0, 40, (12, 12, 3)) + light
        pixels[row : row + 6, column : column + 6] += 150
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{number}.png")


def network() -> nn.Module:
    """With one output: the head grows by what is met."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3),
        nn.Flatten(),
        nn.Linear(128, 32),
        nn.ReLU(),
        nn.Linear(32, 1),
    )


def main() -> list[float]:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for number, (week, names) in enumerate(WEEKS.items()):
            for name in names:
                pictures(root / week, name, light=60 if week == "week4" else number)
        learner = tmln.Learner(network(), method="tmln", batch_size=16, keep=2)
        for week in WEEKS:
            learner.learn(root / week, epochs=20)
            print(f"{week}: {learner.retention.summary()}")
        print(learner.retention)
        found = [after for _, after in learner.retention.tasks().values()]
        (owl,) = learner.predict(root / "week1" / "owl" / "3.png", top=2)
        print("an owl of week 1:", owl)
        learner.undo()
        print("without week 4:", ", ".join(learner.names), f"after {len(learner.seen.record.tasks)} tasks")
    return found


if __name__ == "__main__":
    main()
