"""Tiles dealt out to threads: each once, on one thread, and the same numbers as one after another."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from tests.curvature.test_fisher import assert_same, oracle
from tmln.curvature import diagonal_fisher
from tmln.curvature.lazy_gradients import Lookup, Piece, Product
from tmln.curvature.square_sums import ABSOLUTE_VALUE, SQUARE, GradientSums, Magnitude, run_in_threads


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
