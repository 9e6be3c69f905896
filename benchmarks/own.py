"""Measure data of your own: reading a folder beside Pillow over all cores, predicting beside the bare forward pass.

``tmln learn`` is compared with the learner's loop as a run has it.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.timing import Line, best_times
from tmln.data.image_files import load_images
from tmln.data.own_data import choose_reader
from tmln.data.reading import BadData
from tmln.deploy.learn import LearnRequest, channel_statistics, learn_into
from tmln.learner import Learner
from tmln.models import make_model
from tmln.streams.augment import Normalise
from tmln.streams.own_data import read_own_samples

PICTURES, SIDE, TO = 10_000, 227, 64
PREDICTED, ROUNDS, EPOCHS = 2048, 3, 10


def lines() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        yield reading(root / "pictures")
        yield predicting()
        yield learning(root)


def made(folder: Path, count: int, side: int) -> list[Path]:
    """Write pictures of smooth noise, as JPEG, in two classes."""
    noise, paths = np.random.RandomState(0), []
    coarse = [Image.fromarray(noise.randint(0, 256, (9, 9, 3)).astype(np.uint8)) for _ in range(32)]
    some = [image.resize((side, side), Image.Resampling.BICUBIC) for image in coarse]
    for number in range(count):
        path = folder / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        some[number % len(some)].save(path, quality=90)
        paths.append(path)
    return paths


def reading(folder: Path) -> Line:
    """Read every file anew, by tmln without its cache and by Pillow."""
    paths = made(folder, PICTURES, SIDE)

    def one(path: Path) -> np.ndarray:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB").resize((TO, TO), Image.Resampling.BILINEAR))

    def pillow() -> None:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            np.stack(list(pool.map(one, paths)))

    def ours() -> None:
        with BadData("pictures", False) as bad, tempfile.TemporaryDirectory() as kept:
            load_images(paths, choose_reader(paths, None, TO), bad, Path(kept))

    times = best_times({"pillow": pillow, "ours": ours}, ROUNDS)
    what = f"reading {PICTURES:,} pictures of {SIDE}x{SIDE} to {TO}x{TO}: speed beside Pillow on all cores"
    return Line(what, times["pillow"] / times["ours"], 1.0, at_least=True)


def predicting() -> Line:
    x = torch.randint(0, 256, (PREDICTED, 3, TO, TO), dtype=torch.uint8)
    learner = Learner(make_model("convnet", (3, TO, TO), 10), batch_size=32)
    learner.learn((x[:64], torch.arange(64) % 10))
    rows = 2 * learner.trained.rows_per_pass

    @torch.no_grad()
    def bare() -> None:
        learner.model.eval()
        for part in x.split(rows):
            learner.model((part.float() / 255).contiguous(memory_format=torch.channels_last))

    times = best_times({"bare": bare, "ours": lambda: learner.predict(x)}, ROUNDS)
    return Line("predict: throughput beside the bare forward pass", times["bare"] / times["ours"], 0.9, at_least=True)


def learning(root: Path) -> Line:
    """Measure the steps alone, without the first, reading, evaluation and boundary."""
    made(root / "week", 640, TO)
    own = read_own_samples(root / "week")
    prepare = Normalise(*channel_statistics(own.train))

    def ours() -> list[float]:
        moments: list[float] = []
        state = root / f"{time.monotonic_ns()}.tmln"
        learn_into(
            state,
            root / "week",
            LearnRequest(method="er", epochs=EPOCHS),
            lambda moment: moments.append(time.perf_counter()),
        )
        return moments

    def loop() -> list[float]:
        moments: list[float] = []
        learner = Learner(
            make_model("convnet", own.train.shape, 2),
            "er",
            batch_size=32,
            prepare=prepare,
            schedule="cosine",
            warmup=0.1,
        )
        learner.learn(own.train, EPOCHS, on_step=lambda *step: moments.append(time.perf_counter()))
        return moments

    def step(moments: list[float]) -> float:
        return (moments[-1] - moments[0]) / (len(moments) - 1)

    best = {"ours": math.inf, "loop": math.inf}
    for _ in range(ROUNDS):
        for name, run in (("ours", ours), ("loop", loop)):
            best[name] = min(best[name], step(run()))
    ratio = best["loop"] / best["ours"]
    return Line("tmln learn: throughput beside the learner's own loop", ratio, 0.95, at_least=True)
