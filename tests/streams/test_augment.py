"""Augmentations as a whole: exact expectations, torchvision's distributions, then kornia."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from tmln.streams.augment import (
    BRIGHTNESS,
    Normalise,
    ResizeCentre,
    ResizedCropFlip,
    ShiftFlip,
    draw_brightness,
    finish_batch,
    normalise,
)

ZERO, ONE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)

AUGMENTS = [
    ShiftFlip(ZERO, ONE, brightness=BRIGHTNESS),
    ShiftFlip((0.5, 0.4, 0.3), (0.2, 0.3, 0.4), padding=2),
    ResizedCropFlip(16, ZERO, ONE, brightness=BRIGHTNESS),
    ResizedCropFlip(40, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)),
]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def marked(batch: int) -> torch.Tensor:
    """A 32x32 image whose red value is its row and whose green value is its column, from 1 on."""
    rows, columns = torch.meshgrid(torch.arange(1, 33), torch.arange(1, 33), indexing="ij")
    return torch.stack((rows, columns, rows)).to(torch.uint8).expand(batch, 3, 32, 32)


def test_every_draw_of_shift_flip_is_a_shifted_maybe_flipped_image() -> None:
    """From the pixels alone: each image's offset and flip, uniform over all, and no other change."""
    x = marked(5000)
    out = (ShiftFlip(ZERO, ONE)(x, generator()) * 255).round().long()
    # The centre is never padding: its values tell which row and column landed there.
    row, column = out[:, 0, 15, 15] - 1, out[:, 1, 15, 15] - 1
    mirrored = out[:, 1, 15, 16] < out[:, 1, 15, 15]
    down = row - 15
    across = torch.where(mirrored, column - 16, column - 15)
    assert stats.chisquare(torch.bincount(down + 4, minlength=9).numpy()).pvalue > 0.001
    assert stats.chisquare(torch.bincount(across + 4, minlength=9).numpy()).pvalue > 0.001
    assert stats.binomtest(int(mirrored.sum()), 5000, 0.5).pvalue > 0.001
    assert stats.chi2_contingency(torch.bincount(mirrored * 9 + down + 4).view(2, 9).numpy()).pvalue > 0.001
    for index in range(50):
        expected = torch.zeros(3, 40, 40, dtype=torch.long)
        expected[:, 4:36, 4:36] = x[0]
        top, left = 4 + int(down[index]), 4 + int(across[index])
        window = expected[:, top : top + 32, left : left + 32]
        assert torch.equal(out[index], window.flip(2) if mirrored[index] else window)


def test_brightness_is_uniform_in_its_range() -> None:
    x = torch.full((4000, 3, 32, 32), 0.5)
    out = ShiftFlip(ZERO, ONE, brightness=BRIGHTNESS)(x, generator())
    factors = out[:, 0, 15, 15] / 0.5
    assert stats.kstest(factors.numpy(), stats.uniform(1 - 63 / 255, 2 * 63 / 255).cdf).pvalue > 0.001
    assert torch.equal(out[:, 0, 15, 15], out[:, 2, 16, 16])  # one factor an image


def test_brightness_never_leaves_black_to_white() -> None:
    factors = draw_brightness(10_000, 3.0, generator())
    assert 0.0 <= factors.min() < 0.01
    assert 3.99 < factors.max() <= 4.0
    out = ShiftFlip(ZERO, ONE, brightness=3.0)(torch.full((100, 3, 8, 8), 200, dtype=torch.uint8), generator())
    assert out.max() == 1.0
    assert out.min() == 0.0


def test_kornia_brightens_alike() -> None:
    kornia = pytest.importorskip("kornia")
    x = torch.rand(16, 3, 8, 8, generator=generator())
    mine = ShiftFlip(ZERO, ONE, padding=0, flip=0.0, brightness=BRIGHTNESS)(x, generator(1))
    draws = generator(1)
    torch.randint(0, 1, (2, 16), generator=draws)
    torch.rand(16, generator=draws)
    factors = draw_brightness(16, BRIGHTNESS, draws)
    assert torch.allclose(mine, kornia.enhance.adjust_brightness_accumulative(x, factors), atol=1e-6)


def test_kornia_normalises_alike() -> None:
    kornia = pytest.importorskip("kornia")
    x = torch.rand(4, 3, 8, 8, generator=generator())
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    mine = ResizeCentre(8, mean, std)(x)
    assert torch.allclose(mine, kornia.enhance.normalize(x, torch.tensor(mean), torch.tensor(std)), atol=1e-6)


def test_kornia_crops_and_flips_alike_on_average() -> None:
    """Mean and deviation of every pixel over 4000 draws of one image, by both."""
    kornia = pytest.importorskip("kornia")
    image = torch.rand(1, 3, 16, 16, generator=generator()).expand(4000, 3, 16, 16)
    torch.manual_seed(0)
    other = torch.nn.Sequential(
        kornia.augmentation.RandomCrop((16, 16), padding=4), kornia.augmentation.RandomHorizontalFlip(0.5)
    )(image)
    mine = ShiftFlip(ZERO, ONE)(image, generator())
    # The deviation of a mean of 4000 is below 0.5 / sqrt(4000) = 0.008: five of them, for 768 comparisons.
    assert (mine.mean(0) - other.mean(0)).abs().max() < 5 * 0.008 * 2**0.5
    assert (mine.std(0) - other.std(0)).abs().max() < 0.05


def test_kornia_resized_crops_alike_on_average() -> None:
    kornia = pytest.importorskip("kornia")
    image = torch.rand(1, 3, 24, 24, generator=generator()).expand(2000, 3, 24, 24)
    torch.manual_seed(0)
    other = kornia.augmentation.RandomResizedCrop((32, 32), align_corners=False)(image)
    mine = ResizedCropFlip(32, ZERO, ONE, flip=0.0)(image, generator())
    assert (mine.mean(0) - other.mean(0)).abs().max() < 0.05
    assert abs(float(mine.std() - other.std())) < 0.01


@pytest.mark.parametrize("augment", AUGMENTS)
def test_bytes_and_floats_agree(augment: ShiftFlip | ResizedCropFlip) -> None:
    x = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8, generator=generator())
    kept = x.clone()
    difference = augment(x, generator(3)) - augment(x / 255, generator(3))
    assert difference.abs().max() <= 1.01 * 1.3 / 255 / min(augment.std)  # a grey level, brightened
    assert torch.equal(x, kept)


@pytest.mark.parametrize("augment", AUGMENTS)
def test_drawn_from_its_own_generator_and_resumable(augment: ShiftFlip | ResizedCropFlip) -> None:
    x = torch.randint(0, 256, (6, 3, 32, 32), dtype=torch.uint8, generator=generator())
    state = torch.get_rng_state()
    draws = generator(5)
    augment(x, draws)
    between = draws.get_state()
    expected = augment(x, draws)
    assert torch.equal(torch.get_rng_state(), state)  # the global generator is left alone
    resumed = torch.Generator()
    resumed.set_state(between)
    assert torch.equal(augment(x, resumed), expected)
    assert torch.equal(resumed.get_state(), draws.get_state())
    assert not torch.equal(augment(x, generator(6)), expected)


@pytest.mark.parametrize("augment", AUGMENTS)
def test_layout_in_is_no_matter_layout_out_is_channels_last(augment: ShiftFlip | ResizedCropFlip) -> None:
    x = torch.randint(0, 256, (6, 3, 32, 32), dtype=torch.uint8, generator=generator())
    plain = augment(x, generator())
    other = augment(x.contiguous(memory_format=torch.channels_last), generator())
    assert torch.equal(plain, other)
    assert plain.is_contiguous(memory_format=torch.channels_last)


def test_other_devices_are_asked_for_the_same_shapes() -> None:
    x = torch.empty(4, 3, 32, 32, dtype=torch.uint8, device="meta")
    assert ResizeCentre(24, ZERO, ONE)(x).shape == (4, 3, 24, 24)
    assert ResizeCentre(24, ZERO, ONE)(x).device.type == "meta"


def test_bytes_by_hand() -> None:
    x = torch.tensor([[[[0, 255]], [[51, 102]]]], dtype=torch.uint8)  # one image, two channels, 1x2 pixels
    out = normalise(x, (0.5, 0.2), (0.5, 0.1))
    expected = torch.tensor([[[[-1.0, 1.0]], [[0.0, 2.0]]]])
    assert torch.allclose(out, expected, atol=1e-6)


def test_bytes_and_floats_are_normalised_alike() -> None:
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
    out = finish_batch(pixels, 255.0, torch.tensor([0.5, 2.0]), (0.0,), (1.0,))
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
