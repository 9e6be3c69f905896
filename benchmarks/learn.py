"""Compare ``tmln learn`` with a pre-trained backbone with decoding and a forward pass."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.timing import Line
from tmln.data.own_data import choose_reader
from tmln.deploy.candidates import LARGEST, MODEL, choose_size
from tmln.deploy.learn import LearnRequest, learn_into
from tmln.models import make_model

CLASSES, EACH, PHOTO = 5, 100, (640, 480)
FEW, MANY, LEARNED, SMALL = 10, 50, 20, (96, 96)


def lines() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        yield task(root)
        yield new_class(root)


def draw_photos(folder: Path, first: int, classes: int, each: int, size: tuple[int, int]) -> list[Path]:
    """Write JPEGs of smooth noise, each with the colours of its class."""
    noise, paths = np.random.RandomState(first), []
    for label in range(first, first + classes):
        colour = noise.randint(0, 256, (3, 4, 3))
        for number in range(each):
            coarse = np.clip(colour + noise.randint(-60, 61, colour.shape), 0, 255).astype(np.uint8)
            path = folder / f"class{label}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path, quality=90)
            paths.append(path)
    return paths


def task(root: Path) -> Line:
    """Measure the whole first task: reading, features, head, held-out accuracy, saving."""
    paths = draw_photos(root / "photos", 0, CLASSES, EACH, PHOTO)
    model = make_model(MODEL, (3, LARGEST, LARGEST), CLASSES, size=choose_size(LARGEST)).eval()

    def bare() -> None:
        read = choose_reader(paths, None, LARGEST)
        with torch.no_grad():
            for start in range(0, len(paths), 32):
                batch = torch.from_numpy(np.stack([read(path) for path in paths[start : start + 32]]))
                model(batch.permute(0, 3, 1, 2).float() / 255)

    best = {"bare": float("inf"), "ours": float("inf")}
    for number in range(2):
        begin = time.perf_counter()
        bare()
        middle = time.perf_counter()
        learn_into(root / f"{number}.tmln", root / "photos")
        best["bare"] = min(best["bare"], middle - begin)
        best["ours"] = min(best["ours"], time.perf_counter() - middle)
    what = f"tmln learn of {CLASSES} x {EACH} photos of {PHOTO[0]} x {PHOTO[1]} / decoding and a forward pass"
    return Line(what, best["ours"] / best["bare"], 1.3)


def new_class(root: Path) -> Line:
    """Learn a class of 20 photos, after 10 and after 50 classes of 20."""
    draw_photos(root / "new", 1000, 1, LEARNED, SMALL)
    seconds = {}
    for classes in (FEW, MANY):
        state = root / f"{classes}.tmln"
        draw_photos(root / f"{classes}", 0, classes, LEARNED, SMALL)
        learn_into(state, root / f"{classes}", LearnRequest(image_size=128))
        seconds[classes] = float("inf")
        for _ in range(2):
            copy = root / "copy.tmln"
            shutil.copy(state, copy)
            begin = time.perf_counter()
            learn_into(copy, root / "new")
            seconds[classes] = min(seconds[classes], time.perf_counter() - begin)
    what = f"a class of {LEARNED} photos after {MANY} classes ({seconds[MANY]:.1f} s) / after {FEW}"
    return Line(what, seconds[MANY] / seconds[FEW], 1.5)
