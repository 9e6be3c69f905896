"""Compare a memory on disk with one in RAM: drawing from 10M cached samples, and checkpoints.

Draws are counted in processor time: nothing waits for the disk, and other work on the machine must not count.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.timing import Line, best_times
from tmln.methods.replay import Reservoir

SAMPLES, CHUNK = 10_000_000, 100_000
IMAGES = 50_000


def digits(start: int, count: int) -> tuple[Tensor, Tensor]:
    """Yield images of 8x8 bytes and a label, generated fast."""
    y = torch.arange(start, start + count)
    return (y[:, None] + torch.arange(64)).to(torch.uint8), y


def photos(start: int, count: int) -> tuple[Tensor, Tensor]:
    """Yield images of 3x32x32 bytes and a label."""
    y = torch.arange(start, start + count)
    return (y[:, None] + torch.arange(3 * 32 * 32)).to(torch.uint8).view(-1, 3, 32, 32), y


def filled(capacity: int, make: Callable[[int, int], tuple[Tensor, Tensor]], path: Path | None) -> Reservoir:
    """Fill a memory with a tenth more than its capacity, so that slots are not in file order."""
    memory = Reservoir(capacity, path=path)
    chunk = min(CHUNK, capacity // 10)
    for start in range(0, capacity + capacity // 10, chunk):
        memory.add(*make(start, chunk))
    return memory


def reading(memory: Reservoir, count: int) -> Callable[[], None]:
    """The rows alone, without drawing their numbers: 50 batches."""
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(len(memory), (count,), generator=generator) for _ in range(50)]

    def run() -> None:
        for one in rows:
            memory._storage.read(one)

    return run


def lines() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        ram, disk = filled(IMAGES, photos, None), filled(IMAGES, photos, place / "photos")
        assert all(torch.equal(a, b) for a, b in zip(ram.sample(500), disk.sample(500), strict=True))
        best = best_times({"ram": lambda: ram.sample(128), "disk": lambda: disk.sample(128)}, 400, time.process_time)
        yield Line(f"sample(128) of {IMAGES:,} images: rate on disk / in RAM", best["ram"] / best["disk"], 0.8, True)
        best = best_times({"ram": reading(ram, 128), "disk": reading(disk, 128)}, 30, time.process_time)
        yield Line("the same, reading alone", best["ram"] / best["disk"], None)
        del ram, disk

        ram, disk = filled(SAMPLES, digits, None), filled(SAMPLES, digits, place / "digits")
        assert all(torch.equal(a, b) for a, b in zip(ram.sample(500), disk.sample(500), strict=True))
        best = best_times({"ram": lambda: ram.sample(128), "disk": lambda: disk.sample(128)}, 30, time.process_time)
        yield Line(f"sample(128) of {SAMPLES:,}: rate on disk / in RAM", best["ram"] / best["disk"], 0.8, True)
        best = best_times({"ram": reading(ram, 128), "disk": reading(disk, 128)}, 30, time.process_time)
        yield Line("the same, reading alone", best["ram"] / best["disk"], None)
        disk.state_dict()
        best = best_times({"ram": ram.state_dict, "disk": lambda: checkpoint(disk)}, 3)
        yield Line("a checkpoint after 1,000 more samples: on disk / a copy in RAM", best["disk"] / best["ram"], 0.5)


def checkpoint(memory: Reservoir) -> None:
    memory.add(*digits(0, 1000))
    memory.state_dict()
