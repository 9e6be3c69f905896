"""Rotations and permutations: exact where they can be, kornia where they cannot."""

from __future__ import annotations

import pytest
import torch

from tmln.streams import make_stream
from tmln.streams.incremental import make_permutations, make_rotations, rotate


def test_quarter_turns_are_exact() -> None:
    x = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert rotate(x, 0.0) is x
    for quarter in (1, 2, 3):
        assert torch.equal(rotate(x, 90.0 * quarter), torch.rot90(x, quarter, (2, 3)))


def test_any_angle_against_kornia() -> None:
    kornia = pytest.importorskip("kornia")
    x = torch.rand(2, 1, 9, 13, generator=torch.Generator().manual_seed(0))
    expected = kornia.geometry.rotate(x, torch.tensor([31.0, 31.0]), align_corners=False)
    assert torch.allclose(rotate(x, 31.0), expected, atol=1e-5)


def test_an_image_does_not_depend_on_its_batch() -> None:
    x = torch.randint(0, 256, (7, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(rotate(x, 22.5)[3:4], rotate(x[3:4], 22.5))


def test_domains_have_names_and_start_plain() -> None:
    assert list(make_rotations(4)) == ["0 degrees", "45 degrees", "90 degrees", "135 degrees"]
    x = torch.arange(12).view(2, 1, 2, 3)
    plain, mixed = make_permutations(2, 6, seed=0).values()
    assert torch.equal(plain(x), x)
    assert not torch.equal(mixed(x), x)
    assert torch.equal(mixed(x)[1], mixed(x)[0] + 6)  # one permutation for all images
    assert sorted(mixed(x)[0].flatten().tolist()) == list(range(6))


def test_rotated_digits_turn() -> None:
    stream = make_stream("rotated-digits")
    assert len(stream) == 8
    assert [task.domain for task in stream][:2] == ["0 degrees", "22.5 degrees"]
    assert torch.equal(stream[4].test.x, torch.rot90(stream[0].test.x, 1, (2, 3)))
    assert stream.metadata["domains"] == [task.domain for task in stream]


def test_another_seed_permutes_otherwise() -> None:
    orders = [make_permutations(2, 50, seed)["permutation 1"](torch.arange(50).view(1, 50)) for seed in (0, 0, 1)]
    assert torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])
