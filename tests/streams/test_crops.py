"""Random crops and flips, exact on chosen draws, uniform over many; resizing against Pillow and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from scipy import stats

from tmln.streams.augment import (
    compute_interpolation,
    draw_boxes,
    draw_offsets,
    flip_images,
    resize_centre,
    resize_crops,
    shift_images,
)

both = pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])


def images(dtype: torch.dtype) -> torch.Tensor:
    """Four images of 5x6 pixels, two channels, all values different."""
    return torch.arange(4 * 5 * 6 * 2).view(4, 5, 6, 2).to(dtype)


@both
def test_shifted_against_slices(dtype: torch.dtype) -> None:
    x = images(dtype)
    offsets = torch.tensor([[0, 2, 4, 1], [4, 2, 0, 3]])
    out = shift_images(x, offsets, padding=2)
    padded = F.pad(x, (0, 0, 2, 2, 2, 2))
    for index, (top, left) in enumerate(offsets.T.tolist()):
        assert torch.equal(out[index], padded[index, top : top + 5, left : left + 6])
    assert torch.equal(out[1], x[1])  # padding, padding is the middle
    assert out[0, :2].abs().sum() == 0  # two rows of black come in from above


@both
def test_flipped(dtype: torch.dtype) -> None:
    x = images(dtype)
    out = flip_images(x.clone(), torch.tensor([True, False, False, True]))
    assert torch.equal(out[0], x[0].flip(1))
    assert torch.equal(out[1:3], x[1:3])
    assert torch.equal(out[3, :, 0], x[3, :, 5])
    assert torch.equal(flip_images(x.clone(), torch.zeros(4, dtype=torch.bool)), x)


def test_offsets_are_uniform() -> None:
    offsets = draw_offsets(20_000, 4, torch.Generator().manual_seed(0))
    for axis in offsets:
        counts = torch.bincount(axis, minlength=9)
        assert len(counts) == 9
        assert stats.chisquare(counts.numpy()).pvalue > 0.001
    together = torch.bincount(offsets[0] * 9 + offsets[1], minlength=81)
    assert stats.chisquare(together.numpy()).pvalue > 0.001


def reference_box(height: int, width: int, generator: np.random.Generator) -> tuple[int, int, int, int]:
    """A random resized crop as torchvision documents it: up to ten attempts in turn."""
    for _ in range(10):
        area = height * width * generator.uniform(0.08, 1.0)
        aspect = np.exp(generator.uniform(np.log(3 / 4), np.log(4 / 3)))
        wide, tall = round(np.sqrt(area * aspect)), round(np.sqrt(area / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            return (
                generator.integers(0, height - tall + 1),
                generator.integers(0, width - wide + 1),
                tall,
                wide,
            )
    raise AssertionError("ten attempts fail less than once in 10,000 here")


def test_boxes_have_the_reference_distribution() -> None:
    boxes = draw_boxes(4000, 128, 128, torch.Generator().manual_seed(0))
    generator = np.random.default_rng(0)
    expected = np.array([reference_box(128, 128, generator) for _ in range(4000)]).T
    for mine, other in zip(boxes.numpy(), expected, strict=True):
        assert stats.ks_2samp(mine, other).pvalue > 0.001
    top, left, tall, wide = boxes
    assert bool(((top >= 0) & (left >= 0) & (top + tall <= 128) & (left + wide <= 128)).all())
    assert bool((boxes == boxes.round()).all())


def test_boxes_against_kornia() -> None:
    kornia = pytest.importorskip("kornia")
    maker = kornia.augmentation.random_generator.ResizedCropGenerator((24, 24), (0.08, 1.0), (3 / 4, 4 / 3))
    torch.manual_seed(0)
    source = maker(torch.Size((4000, 3, 128, 128)))["src"]
    wide = source[:, 1, 0] - source[:, 0, 0] + 1
    tall = source[:, 2, 1] - source[:, 1, 1] + 1
    boxes = draw_boxes(4000, 128, 128, torch.Generator().manual_seed(0))
    area = boxes[2] * boxes[3]
    assert abs(float(area.mean() / (tall * wide).mean()) - 1) < 0.03
    assert abs(float(boxes[3].log().sub(boxes[2].log()).std() / (wide.log() - tall.log()).std()) - 1) < 0.05


def test_the_central_box_where_none_fits() -> None:
    # Of a 10x100 image all boxes of half its area or more are too tall, so the largest of ratio 4/3 is taken.
    boxes = draw_boxes(3, 10, 100, torch.Generator().manual_seed(0), scale=(0.5, 1.0))
    assert boxes.T.tolist() == [[0, 43, 10, 13]] * 3
    tall = draw_boxes(3, 100, 10, torch.Generator().manual_seed(0), scale=(0.5, 1.0))
    assert tall.T.tolist() == [[43, 0, 13, 10]] * 3


def test_area_and_aspect_where_every_attempt_fits() -> None:
    """In a large image rounding and refusals do not blur the law: area uniform, aspect ratio log-uniform."""
    boxes = draw_boxes(4000, 4000, 4000, torch.Generator().manual_seed(0), scale=(0.1, 0.5))
    area, aspect = boxes[2] * boxes[3] / 4000**2, boxes[3].log() - boxes[2].log()
    assert stats.kstest(area.numpy(), stats.uniform(0.1, 0.4).cdf).pvalue > 0.001
    assert stats.kstest(aspect.numpy(), stats.uniform(np.log(3 / 4), np.log(16 / 9)).cdf).pvalue > 0.001


def weights(start: float, length: float, inputs: int, outputs: int) -> list[list[float]]:
    made = compute_interpolation(torch.tensor([start]), torch.tensor([length]), inputs, outputs)[0]
    return [[round(value, 4) for value in row] for row in made.tolist()]


def test_weights_by_hand() -> None:
    # Two pixels to four: centres .25 .75 1.25 1.75, pixel centres .5 and 1.5; the edges repeat.
    assert weights(0, 2, 2, 4) == [[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]]
    # The same box inside a wider image: what lies outside is not read.
    assert weights(1, 2, 4, 4) == [[0, 1, 0, 0], [0, 0.75, 0.25, 0], [0, 0.25, 0.75, 0], [0, 0, 1, 0]]
    # Four pixels to two: the triangle is twice as wide, 3/7 3/7 1/7 (and nothing beyond the edge).
    assert weights(0, 4, 4, 2) == [[0.4286, 0.4286, 0.1429, 0], [0, 0.1429, 0.4286, 0.4286]]
    assert weights(0, 3, 3, 3) == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def reference(x: torch.Tensor, boxes: torch.Tensor, size: int) -> torch.Tensor:
    out = []
    for image, (top, left, tall, wide) in zip(x.permute(0, 3, 1, 2), boxes.T.long().tolist(), strict=True):
        crop = image[None, :, top : top + tall, left : left + wide].float()
        out.append(F.interpolate(crop, (size, size), mode="bilinear", antialias=True)[0])
    return torch.stack(out).permute(0, 2, 3, 1)


def test_crops_against_torch_up_and_down() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(12, 40, 60, 3, generator=generator)
    boxes = draw_boxes(12, 40, 60, generator)
    for size in (16, 30, 70):
        assert torch.allclose(resize_crops(x, boxes, size), reference(x, boxes, size), atol=1e-5)


def test_bytes_are_the_floats_rounded() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (6, 32, 32, 3), dtype=torch.uint8, generator=generator)
    boxes = draw_boxes(6, 32, 32, generator)
    for size in (16, 48):
        out = resize_crops(x, boxes, size)
        assert out.dtype == torch.uint8
        assert (out.float() - reference(x, boxes, size)).abs().max() <= 1.001


def test_bytes_as_pillow_makes_them() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (1, 32, 32, 3), dtype=torch.uint8, generator=generator)
    boxes = torch.tensor([[4.0], [7.0], [20.0], [15.0]])
    crop = Image.fromarray(x[0].numpy()).crop((7, 4, 22, 24)).resize((40, 40), Image.Resampling.BILINEAR)
    assert np.abs(resize_crops(x, boxes, 40)[0].numpy().astype(int) - np.asarray(crop).astype(int)).max() <= 1


def test_centre_is_resize_then_crop() -> None:
    x = torch.rand(2, 50, 70, 3, generator=torch.Generator().manual_seed(0))
    whole = F.interpolate(x.permute(0, 3, 1, 2), (40, 56), mode="bilinear", antialias=True)
    expected = whole[:, :, 4:36, 12:44].permute(0, 2, 3, 1)
    assert torch.allclose(resize_centre(x, 40, 32), expected, atol=1e-6)
    upright = resize_centre(x.transpose(1, 2), 40, 32).transpose(1, 2)
    assert torch.allclose(upright, expected, atol=1e-5)


def test_centre_of_the_right_size_is_the_image() -> None:
    x = torch.rand(2, 8, 8, 3)
    assert torch.equal(resize_centre(x, 8, 8), x)
    assert torch.equal(resize_centre(x, 8, 4), x[:, 2:6, 2:6])
