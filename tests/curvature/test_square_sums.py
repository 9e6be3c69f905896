"""Absolute values in place of squares: the same pass, the same check, other sums."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.curvature.test_fisher import assert_same, oracle
from tests.zoo import TimeMajor, sequences
from tmln.curvature import diagonal_fisher
from tmln.curvature.fisher import GradientMeans, mean_gradient_magnitudes
from tmln.curvature.lazy_gradients import Computed, Lookup, Piece, Product
from tmln.curvature.square_sums import ABSOLUTE_VALUE, SQUARE, GradientSums, Magnitude, run_in_threads
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


# -- tiles dealt out to threads: each once, on one thread, and the same numbers as one after another


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TILE": 6, "TILES": 60, "ROWS": 1, "THREADS_FROM": 1, "LARGE": 1}.items():
        monkeypatch.setattr(f"tmln.curvature.square_sums.{name}", value)


def test_every_item_once_and_on_one_thread_of_torchs() -> None:
    done: list[tuple[int, int, bool]] = []
    here = threading.get_ident()
    run_in_threads(lambda item: done.append((item, torch.get_num_threads(), threading.get_ident() == here)), range(20))
    assert sorted(done) == [(item, 1, False) for item in range(20)]
    assert torch.get_num_threads() == 2
    newcomer: list[int] = []
    thread = threading.Thread(target=lambda: newcomer.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert newcomer == [2]


@pytest.mark.parametrize(("threads", "items"), [(1, 20), (2, 1), (2, 0)])
def test_nothing_is_dealt_out_where_nobody_could_help(threads: int, items: int) -> None:
    torch.set_num_threads(threads)
    done: list[int] = []
    run_in_threads(lambda item: done.append(threading.get_ident()), range(items))
    assert done == [threading.get_ident()] * items


def test_what_a_thread_raises_is_raised() -> None:
    def fails(item: int) -> None:
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 3"):
        run_in_threads(fails, [3, 3, 3])
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("small_tiles")
def test_a_product_squared_by_hand() -> None:
    left, right = torch.zeros(9, 6, 2), torch.zeros(9, 6, 3)
    left[0, :2], right[0, :2] = (
        torch.tensor([[1.0, 2.0], [0.0, -1.0]]),
        torch.tensor([[1.0, 0.0, 3.0], [2.0, 1.0, 0.0]]),
    )
    left[8, 5], right[8, 5] = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 1.0, -1.0])
    sums, p = GradientSums(), torch.zeros(2, 3)
    sums.add(p, [Product(left, right)], 9)
    # sample 0: [[1, 0, 3], [0, -1, 6]], sample 8: [[0, 3, -3], [0, 0, 0]]
    assert sums.values[p].tolist() == [[1.0, 9.0, 18.0], [0.0, 1.0, 36.0]]


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("size", [SQUARE, ABSOLUTE_VALUE], ids=["squared", "absolute"])
@pytest.mark.parametrize("samples", [3, 20])
def test_threads_change_no_bit_and_no_input(samples: int, size: Magnitude) -> None:
    torch.manual_seed(0)
    left, right = torch.randn(samples, 9, 40), torch.randn(samples, 9, 3)
    lookup = Lookup.of(torch.randint(40, (samples, 9)), torch.randn(samples, 9, 3))
    pieces: list[Piece] = [lookup, Product(left, right)]
    before, p, found = [x.clone() for x in (left, right, lookup.values)], torch.zeros(40, 3), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        sums = GradientSums(size)
        for _ in range(2):
            sums.add(p, pieces, samples)
        found.append(sums.values[p])
    whole = torch.einsum("ntr,ntc->nrc", left, right)
    whole.index_put_((lookup.sample, lookup.row), lookup.values, accumulate=True)
    torch.testing.assert_close(found[0], 2 * size.of(whole).sum(0))
    assert torch.equal(found[0], found[1])
    assert all(torch.equal(a, b) for a, b in zip(before, (left, right, lookup.values), strict=True))


@pytest.mark.usefixtures("small_tiles")
def test_a_model_and_its_check_go_by_threads() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 5), nn.Flatten(), nn.Linear(35, 4))
    x, y = torch.randn(10, 7, 3), torch.randint(4, (10,))
    fisher = diagonal_fisher(model, [(x, y)])
    assert fisher.strategy == "hooks"
    assert_same(fisher, oracle(model, x, y), 1e-5)
