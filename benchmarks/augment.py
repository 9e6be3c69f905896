"""Compare batched augmentation with Pillow image by image, and prefetching with waiting."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance
from torch import Tensor, nn

from benchmarks.timing import Line, best_times
from tmln.data.image_files import IMAGENET
from tmln.models import make_model
from tmln.streams import Samples, prefetch
from tmln.streams.augment import BRIGHTNESS, ResizedCropFlip, ShiftFlip

BATCH = 128
MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)


def images(count: int, size: int) -> Tensor:
    pixels = torch.randint(0, 256, (count, size, size, 3), dtype=torch.uint8)
    return pixels.permute(0, 3, 1, 2)


def one_by_one(
    x: Tensor, crop: Callable[[Image.Image], Image.Image], mean: tuple[float, ...], std: tuple[float, ...]
) -> Tensor:
    """What a dataset of Pillow images does: crop, flip, brighten, to float, normalise; then stack."""
    out = []
    for pixels in x.permute(0, 2, 3, 1).numpy():
        image = crop(Image.fromarray(pixels))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = ImageEnhance.Brightness(image).enhance(random.uniform(1 - BRIGHTNESS, 1 + BRIGHTNESS))
        tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div_(255)
        out.append(tensor.sub_(torch.tensor(mean).view(3, 1, 1)).div_(torch.tensor(std).view(3, 1, 1)))
    return torch.stack(out).contiguous(memory_format=torch.channels_last)


def padded_crop(image: Image.Image) -> Image.Image:
    canvas = Image.new("RGB", (40, 40))
    canvas.paste(image, (4, 4))
    top, left = random.randint(0, 8), random.randint(0, 8)
    return canvas.crop((left, top, left + 32, top + 32))


def resized_crop(image: Image.Image) -> Image.Image:
    side = round(128 * random.uniform(0.08, 1.0) ** 0.5)
    top, left = random.randint(0, 128 - side), random.randint(0, 128 - side)
    return image.crop((left, top, left + side, top + side)).resize((224, 224), Image.Resampling.BILINEAR)


def epoch(model: nn.Module, samples: Samples, augment: ShiftFlip, depth: int) -> Callable[[], None]:
    """Run a few training steps that fetch their batches ``depth`` ahead."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(0)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for rows in torch.split(torch.randperm(len(samples), generator=generator), BATCH):
            x, y = samples.gather(rows)
            yield augment(x, generator), y

    def run() -> None:
        for x, y in prefetch(batches(), depth):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return run


def lines() -> Iterator[Line]:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    small, large = images(BATCH, 32), images(32, 128)
    cifar = ShiftFlip(MEAN, STD, brightness=BRIGHTNESS)
    core50 = ResizedCropFlip(224, *IMAGENET, brightness=BRIGHTNESS)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one core against one core
    best = best_times(
        {
            "pillow": lambda: one_by_one(small, padded_crop, MEAN, STD),
            "tmln": lambda: cifar(small, generator),
        },
        40,
    )
    yield Line(f"CIFAR, batch {BATCH}: Pillow sample by sample / tmln", best["pillow"] / best["tmln"], 5.0, True)
    best = best_times(
        {
            "pillow": lambda: one_by_one(large, resized_crop, *IMAGENET),
            "tmln": lambda: core50(large, generator),
        },
        10,
    )
    yield Line("CORe50, batch 32 to 224x224: Pillow / tmln", best["pillow"] / best["tmln"], 1.5, True)
    samples = Samples.of(
        torch.randint(0, 256, (1024, 32, 32, 3), dtype=torch.uint8),
        torch.arange(1024) % 10,
        channels_last=True,
    )
    runs = {depth: epoch(make_model("cnn", (3, 32, 32), 10), samples, cifar, depth) for depth in (0, 2)}
    best = best_times({str(depth): run for depth, run in runs.items()}, 10)
    yield Line("small CNN, one thread: with prefetch / without", best["2"] / best["0"], 1.1)
    torch.set_num_threads(threads)
