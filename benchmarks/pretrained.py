"""Measure pre-trained backbones and closed-form heads: extraction, heads, a new class among many."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from benchmarks.timing import Line, best_times
from tmln.data.images import DraftReader
from tmln.deploy.candidates import LARGEST
from tmln.deploy.learn import learn_into
from tmln.experiments.memory_estimate import held_bytes, peak_bytes, reset_peak
from tmln.learner import Learner
from tmln.models import make_model

PICTURES, SIZE, FEATURES, ROUNDS = 320, 96, 1280, 3
APART = 0.3  # deviation of class means, that of samples of a class being 1
HEADS = ("ncm-frozen", "slda", "ranpac")
CLASSES, EACH, ROOM = 1000, 10, 200e6  # of the measurement of memory, and the bytes that are allowed
PHOTO_CLASSES, PHOTOS, PHOTO = 5, 100, (640, 480)  # folders of `tmln learn`, photos in each, their size


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
        learned, ready = (min(both) for both in zip(*(learn_features(name) for _ in range(ROUNDS)), strict=True))
        yield Line(f"{name}: a task of {PICTURES} from features / extraction", learned / times["extract"], 0.1)
        yield Line(f"{name}: the same, and the head for a prediction", ready / times["extract"], None)
    for name in HEADS:
        few, many = (min(add_class(name, classes) for _ in range(ROUNDS)) for classes in (20, 200))
        yield Line(f"{name}: one more class and the head at 200 / at 20 classes", many / few, 1.5)
    learned, least = learn_photos()
    shape = f"{PHOTO_CLASSES} x {PHOTOS} photos of {PHOTO[0]}x{PHOTO[1]}"
    yield Line(f"tmln learn of {shape} / decoding and forward pass", learned / least, 1.3)
    grown = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, check=True)
    yield Line(f"ranpac: growth with {CLASSES:,} classes / 200 MB", int(grown.stdout) / ROOM, 1.0)


def features(classes: int, each: int, first: int = 0) -> tuple[Tensor, Tensor]:
    """Features of classes that differ, as a backbone's do; of noise `slda` tries more shrinkages the more classes."""
    generator = torch.Generator().manual_seed(classes + first)
    y = torch.arange(classes).repeat(each) + first
    means = APART * torch.randn(classes + first, FEATURES, generator=torch.Generator().manual_seed(0))
    return (means[y] + torch.randn(len(y), FEATURES, generator=generator)).relu(), y


def learner(name: str, classes: int) -> Learner:
    return Learner(nn.Sequential(nn.Identity(), nn.Linear(FEATURES, classes)), name)


def learn_features(name: str) -> tuple[float, float]:
    """Seconds of a task of as many samples as pictures, after one like it: without and with the head."""
    trained = learner(name, 20)
    trained.learn(features(10, PICTURES // 10))
    task = features(10, PICTURES // 10, 10)
    begin = time.perf_counter()
    trained.learn(task, atomic=False)
    learned = time.perf_counter() - begin
    trained.answer.prepare()
    return learned, time.perf_counter() - begin


def add_class(name: str, classes: int) -> float:
    """Seconds of the core for one class of 20 samples after so many, and for the head."""
    trained = learner(name, classes + 1)
    trained.learn(features(classes, 20))
    task = features(1, 20, classes)
    begin = time.process_time()
    trained.learn(task, atomic=False)
    trained.answer.prepare()
    return time.process_time() - begin


def learn_photos() -> tuple[float, float]:
    """Seconds of the core for a new state from photos, and for decoding them and one forward pass."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        files = []
        for number in range(PHOTO_CLASSES * PHOTOS):
            file = Path(place) / "photos" / f"class {number % PHOTO_CLASSES}" / f"{number}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            coarse = rng.integers(256, size=(12, 16, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize(PHOTO, Image.Resampling.BICUBIC).save(file)
            files.append(file)
        model = make_model("efficientnet-lite0", (3, LARGEST, LARGEST), PHOTO_CLASSES, size=LARGEST).eval()
        begin = time.process_time()
        x = torch.from_numpy(np.stack([DraftReader("RGB", LARGEST, fit="pad")(file) for file in files]))
        with torch.no_grad():
            for piece in x.permute(0, 3, 1, 2).split(32):
                model(piece.float() / 255)
        least = time.process_time() - begin
        learn_into(Path(place) / "state.tmln", Path(place) / "photos")
        return time.process_time() - begin - least, least


def measure_growth() -> int:
    """Bytes that this process grows by at most, as it learns 1,000 classes in ten tasks and predicts."""
    x, y = features(CLASSES, EACH)
    y = torch.arange(CLASSES).repeat_interleave(EACH)
    trained = learner("ranpac", CLASSES)
    warm = learner("ranpac", CLASSES)
    warm.learn((x[:64], y[:64]), atomic=False)
    warm.predict(x[:2])
    del warm
    reset_peak()
    before = held_bytes()
    for rows in torch.arange(len(y)).chunk(10):
        trained.learn((x[rows], y[rows]), atomic=False)
        trained.predict(x[:2])
    return peak_bytes() - before


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(measure_growth())
