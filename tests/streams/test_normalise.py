"""Normalisation: by hand, for bytes and floats, images and features."""

from __future__ import annotations

import torch

from tmln.streams.normalise import Normalise, finished, normalise


def test_bytes_by_hand() -> None:
    x = torch.tensor([[[[0, 255]], [[51, 102]]]], dtype=torch.uint8)  # one image, two channels, 1x2 pixels
    out = normalise(x, (0.5, 0.2), (0.5, 0.1))
    expected = torch.tensor([[[[-1.0, 1.0]], [[0.0, 2.0]]]])
    assert torch.allclose(out, expected, atol=1e-6)


def test_bytes_and_floats_agree() -> None:
    x = torch.randint(0, 256, (4, 3, 5, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    expected = (x / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    assert torch.allclose(normalise(x, mean, std), expected, atol=1e-6)
    floats = x / 255
    kept = floats.clone()
    assert torch.allclose(normalise(floats, mean, std), expected, atol=1e-6)
    assert torch.equal(floats, kept)  # the input is left alone


def test_one_number_for_all_channels() -> None:
    x = torch.rand(2, 3, 4, 5)
    assert torch.allclose(normalise(x, (0.5,), (2.0,)), (x - 0.5) / 2.0, atol=1e-7)


def test_features() -> None:
    x = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    assert normalise(x, (1.0, 10.0), (2.0, 20.0)).tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert normalise(x, (1.0,), (2.0,)).tolist() == [[0.0, 4.5], [1.0, 14.5]]


def test_nothing_to_do_for_floats() -> None:
    x = torch.rand(3, 7)
    assert Normalise()(x) is x
    assert Normalise()(torch.tensor([[255]], dtype=torch.uint8)).tolist() == [[1.0]]


def test_brightness_stops_at_white() -> None:
    pixels = torch.tensor([[[[100.0]]], [[[200.0]]]])
    out = finished(pixels, 255.0, torch.tensor([0.5, 2.0]), (0.0,), (1.0,))
    assert torch.allclose(out.flatten(), torch.tensor([50 / 255, 1.0]))


def test_layout_is_channels_last_for_every_input_layout() -> None:
    x = torch.rand(2, 3, 4, 5)
    for given in (
        x,
        x.contiguous(memory_format=torch.channels_last),
        x.transpose(2, 3).contiguous().transpose(2, 3),
    ):
        out = normalise(given, (0.5,), (0.5,))
        assert out.is_contiguous(memory_format=torch.channels_last)
        assert torch.allclose(out, (x - 0.5) / 0.5, atol=1e-6)


def test_first_asked_for_in_inference_mode() -> None:
    x = torch.rand(2, 3, 4, 5)
    mean, std = (0.111,), (0.222,)  # used nowhere else
    with torch.inference_mode():
        normalise(x, mean, std)
    differentiable = x.clone().requires_grad_()
    normalise(differentiable, mean, std).sum().backward()
    assert torch.allclose(differentiable.grad, torch.full_like(x, 1 / 0.222))  # type: ignore[arg-type]
