"""Resizing: weights by hand, both paths against torch's and Pillow's own."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from tmln.streams.crops import draw_boxes
from tmln.streams.resize import interpolation, resized_centre, resized_crops


def weights(start: float, length: float, inputs: int, outputs: int) -> list[list[float]]:
    made = interpolation(torch.tensor([start]), torch.tensor([length]), inputs, outputs)[0]
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
        assert torch.allclose(resized_crops(x, boxes, size), reference(x, boxes, size), atol=1e-5)


def test_bytes_are_the_floats_rounded() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (6, 32, 32, 3), dtype=torch.uint8, generator=generator)
    boxes = draw_boxes(6, 32, 32, generator)
    for size in (16, 48):
        out = resized_crops(x, boxes, size)
        assert out.dtype == torch.uint8
        assert (out.float() - reference(x, boxes, size)).abs().max() <= 1.001


def test_bytes_as_pillow_makes_them() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (1, 32, 32, 3), dtype=torch.uint8, generator=generator)
    boxes = torch.tensor([[4.0], [7.0], [20.0], [15.0]])
    crop = Image.fromarray(x[0].numpy()).crop((7, 4, 22, 24)).resize((40, 40), Image.Resampling.BILINEAR)
    assert np.abs(resized_crops(x, boxes, 40)[0].numpy().astype(int) - np.asarray(crop).astype(int)).max() <= 1


def test_centre_is_resize_then_crop() -> None:
    x = torch.rand(2, 50, 70, 3, generator=torch.Generator().manual_seed(0))
    whole = F.interpolate(x.permute(0, 3, 1, 2), (40, 56), mode="bilinear", antialias=True)
    expected = whole[:, :, 4:36, 12:44].permute(0, 2, 3, 1)
    assert torch.allclose(resized_centre(x, 40, 32), expected, atol=1e-6)
    upright = resized_centre(x.transpose(1, 2), 40, 32).transpose(1, 2)
    assert torch.allclose(upright, expected, atol=1e-5)


def test_centre_of_the_right_size_is_the_image() -> None:
    x = torch.rand(2, 8, 8, 3)
    assert torch.equal(resized_centre(x, 8, 8), x)
    assert torch.equal(resized_centre(x, 8, 4), x[:, 2:6, 2:6])
