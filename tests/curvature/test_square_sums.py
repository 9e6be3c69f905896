"""Absolute values in place of squares: the same pass, the same check, other sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.zoo import TimeMajor, sequences
from tmln.curvature.fisher import GradientMeans, mean_gradient_magnitudes
from tmln.curvature.lazy_gradients import Computed, Lookup, Piece, Product
from tmln.curvature.square_sums import ABSOLUTE_VALUE, SQUARE, GradientSums, Magnitude
from tmln.methods.penalties.mas import compute_squared_norm
from tmln.methods.replay import Reservoir

SIZES = pytest.mark.parametrize("size", [SQUARE, ABSOLUTE_VALUE], ids=["squared", "absolute"])


def summed(size: Magnitude, shape: tuple[int, ...], *pieces: Piece, samples: int) -> list[Any]:
    p, sums = torch.zeros(shape), GradientSums(size)
    sums.add(p, pieces, samples)
    found: list[Any] = sums.values[p].tolist()
    return found


def test_one_position() -> None:
    left, right = torch.tensor([[[1.0, -2.0]], [[3.0, 0.0]]]), torch.tensor([[[-1.0]], [[2.0]]])
    assert summed(ABSOLUTE_VALUE, (2, 1), Product(left, right), samples=2) == [[1 + 6], [2 + 0]]
    assert summed(SQUARE, (2, 1), Product(left, right), samples=2) == [[1 + 36], [4 + 0]]


def test_positions_are_added_up_before_their_size_is_taken() -> None:
    left, right = torch.tensor([[[1.0], [1.0]], [[2.0], [1.0]]]), torch.tensor([[[3.0], [-3.0]], [[-2.0], [1.0]]])
    assert summed(ABSOLUTE_VALUE, (1, 1), Product(left, right), samples=2) == [[0 + 3]]
    assert summed(SQUARE, (1, 1), Product(left, right), samples=2) == [[0 + 9]]


def test_looked_up_rows_with_another_use_and_without() -> None:
    words, g = torch.tensor([[0, 0], [0, 2]]), torch.tensor([[[1.0], [-4.0]], [[2.0], [-5.0]]])
    lookup = Lookup.of(words, g)
    assert summed(ABSOLUTE_VALUE, (3, 1), lookup, samples=2) == [[3 + 2], [0], [5]]
    assert summed(SQUARE, (3, 1), lookup, samples=2) == [[9 + 4], [0], [25]]
    other = Computed(torch.tensor([[[1.0], [0.0], [0.0]], [[1.0], [1.0], [1.0]]]).__getitem__, 3)
    assert summed(ABSOLUTE_VALUE, (3, 1), lookup, other, samples=2) == [[2 + 3], [1], [4]]


@pytest.mark.parametrize(
    "make", [lambda v: Computed(v.__getitem__, v[0].numel()), lambda v: Computed(lambda n: v[n], 1)]
)
@SIZES
def test_large_and_small_parameters(size: Magnitude, make: Callable[[Tensor], Piece]) -> None:
    for shape in ((2, 3), (200, 300)):
        found, p, sums = torch.randn(5, *shape, dtype=torch.double), torch.zeros(shape), GradientSums(size)
        sums.add(p, [make(found)], 5)
        torch.testing.assert_close(sums.values[p], found.abs().pow(size.power).sum(0))


def one_by_one(
    model: nn.Module, samples: list[Any], size: Magnitude, score: Any = compute_squared_norm
) -> dict[str, Tensor]:
    """The definition, by plain autograd: each sample is what ``model(*args)`` takes."""
    names = dict(model.named_parameters())
    sums = {name: torch.zeros_like(p) for name, p in names.items()}
    for args in samples:
        found = torch.autograd.grad(score(model(*args)).sum(), list(names.values()))
        for name, gradient in zip(names, found, strict=True):
            sums[name] += gradient.abs() ** size.power / len(samples)
    return sums


def assert_means(model: nn.Module, found: GradientMeans, expected: dict[str, Tensor]) -> None:
    for name, p in model.named_parameters():
        torch.testing.assert_close(found.means[p], expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("alike", [False, True])
@SIZES
def test_samples_that_a_rule_would_mix_are_found_out(size: Magnitude, alike: bool) -> None:
    torch.manual_seed(0)
    model, (x, y) = TimeMajor(), sequences(4)(6)
    if alike:
        x[:2] = x[0, 0]
    found = mean_gradient_magnitudes(model, [(x, y)], set(model.parameters()), compute_squared_norm, size, "sizes")
    assert found.strategy == "vmap"
    assert_means(model, found, one_by_one(model, [(row[None],) for row in x], size))


@SIZES
def test_a_layer_that_wakes_up_late_is_checked_by_the_same_size(size: Magnitude) -> None:
    torch.manual_seed(0)
    model, (x, y) = TimeMajor(), sequences(4)(8)
    with torch.no_grad():
        model.lift.bias.fill_(-0.1)
    x[:4] = 0.0
    expected = one_by_one(model, [(row[None],) for row in x], size)
    found = mean_gradient_magnitudes(
        model, [(x, y)], set(model.parameters()), compute_squared_norm, size, "sizes", chunk_size=2
    )
    assert found.strategy == "vmap"
    assert_means(model, found, expected)


class Reader(nn.Module):
    """Looked-up words and a layer over their positions, of which the mask keeps some."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.mix, self.head = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = torch.tanh(self.mix(self.words(input_ids))) * attention_mask[..., None]
        found: Tensor = self.head(hidden.sum(1))
        return found


@SIZES
def test_a_memory_of_texts_and_frozen_parameters(size: Magnitude) -> None:
    """Dicts with a mask, as a memory gives them; what is frozen counts where it is asked for, and stays frozen."""
    torch.manual_seed(0)
    model = Reader()
    rows = [torch.randint(1, 9, (n,)) for n in (3, 1, 4, 2, 2, 4)]
    memory = Reservoir(6, pad={"input_ids": 0}, mask="attention_mask")
    memory.add({"input_ids": rows, "labels": torch.zeros(6, dtype=torch.long)})
    expected = one_by_one(model, [(row[None], torch.ones(1, len(row))) for row in rows], size)
    model.words.weight.requires_grad_(False)
    found = mean_gradient_magnitudes(
        model, memory.batches(4), set(model.parameters()), compute_squared_norm, size, "sizes"
    )
    assert not model.words.weight.requires_grad
    assert (found.samples, found.strategy) == (6, "hooks")
    assert_means(model, found, expected)
