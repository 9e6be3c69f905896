"""Pre-trained backbones and heads in closed form: extraction, heads from features, a new class among many."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks.timing import Line, best_times
from tmln.learner import Learner
from tmln.models import make_model

PICTURES, SIZE, FEATURES, ROUNDS = 320, 96, 1280, 3
HEADS = ("ncm-frozen", "slda", "ranpac")


def lines() -> Iterator[Line]:
    x = torch.randint(256, (PICTURES, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    y = torch.arange(PICTURES) % 10
    model = make_model("efficientnet-lite0", x.shape[1:], 10, size=SIZE).eval()

    def forward() -> None:
        with torch.no_grad():
            for piece in x.split(256):
                model(piece.float() / 255)

    def extract() -> None:
        Learner(model, "ncm-frozen").learn((x, y), atomic=False)

    times = best_times({"forward": forward, "extract": extract}, ROUNDS)
    yield Line(f"forward pass / extraction, {SIZE} pixels", times["forward"] / times["extract"], 0.95, at_least=True)
    for name in HEADS:
        seconds = min(learn_features(name) for _ in range(ROUNDS))
        yield Line(f"{name}: a task of {PICTURES} from features / extraction", seconds / times["extract"], 0.1)
    for name in HEADS:
        few, many = (min(add_class(name, classes) for _ in range(ROUNDS)) for classes in (20, 200))
        yield Line(f"{name}: one more class at 200 / at 20 classes", many / few, 1.5)


def features(classes: int, each: int, first: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(classes + first)
    y = torch.arange(classes).repeat(each) + first
    return torch.randn(len(y), FEATURES, generator=generator).relu(), y


def learner(name: str, classes: int) -> Learner:
    return Learner(nn.Sequential(nn.Identity(), nn.Linear(FEATURES, classes)), name)


def learn_features(name: str) -> float:
    """Seconds of a task of as many samples as pictures, after one like it."""
    trained = learner(name, 20)
    trained.learn(features(10, PICTURES // 10))
    task = features(10, PICTURES // 10, 10)
    begin = time.perf_counter()
    trained.learn(task, atomic=False)
    return time.perf_counter() - begin


def add_class(name: str, classes: int) -> float:
    """Seconds of one class of 20 samples after so many."""
    trained = learner(name, classes + 1)
    trained.learn(features(classes, 20))
    task = features(1, 20, classes)
    begin = time.perf_counter()
    trained.learn(task, atomic=False)
    return time.perf_counter() - begin
