"""Random crops and flips: exact on chosen draws, uniform over many."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from tmln.streams.crops import draw_boxes, draw_offsets, flipped, shifted

both = pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])


def images(dtype: torch.dtype) -> torch.Tensor:
    """Four images of 5x6 pixels, two channels, all values different."""
    return torch.arange(4 * 5 * 6 * 2).view(4, 5, 6, 2).to(dtype)


@both
def test_shifted_against_slices(dtype: torch.dtype) -> None:
    x = images(dtype)
    offsets = torch.tensor([[0, 2, 4, 1], [4, 2, 0, 3]])
    out = shifted(x, offsets, padding=2)
    padded = F.pad(x, (0, 0, 2, 2, 2, 2))
    for index, (top, left) in enumerate(offsets.T.tolist()):
        assert torch.equal(out[index], padded[index, top : top + 5, left : left + 6])
    assert torch.equal(out[1], x[1])  # padding, padding is the middle
    assert out[0, :2].abs().sum() == 0  # two rows of black come in from above


@both
def test_flipped(dtype: torch.dtype) -> None:
    x = images(dtype)
    out = flipped(x.clone(), torch.tensor([True, False, False, True]))
    assert torch.equal(out[0], x[0].flip(1))
    assert torch.equal(out[1:3], x[1:3])
    assert torch.equal(out[3, :, 0], x[3, :, 5])
    assert torch.equal(flipped(x.clone(), torch.zeros(4, dtype=torch.bool)), x)


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
