"""Positions that add nothing are left out: which they are, and that no sum misses them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tests.curvature.test_fisher import assert_same, oracle
from tmln.curvature import diagonal_fisher
from tmln.curvature.lazy_gradients import LOOK, Lookup, Piece, Product, drop_empty_positions, find_occupied
from tmln.curvature.square_sums import ABSOLUTE_VALUE, SQUARE, GradientSums, Magnitude


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TILE": 12, "TILES": 48, "ROWS": 1, "LARGE": 1}.items():
        monkeypatch.setattr(f"tmln.curvature.square_sums.{name}", value)


def test_by_hand() -> None:
    left = torch.tensor([[[1.0], [0.0], [0.0]], [[0.0], [2.0], [3.0]]])
    right = torch.tensor([[[5.0], [6.0], [7.0]], [[8.0], [9.0], [0.0]]])
    lookup = Lookup(torch.tensor([0]), torch.tensor([0]), torch.tensor([[4.0]]))
    assert find_occupied(Product(left, right)).tolist() == [[True, False, False], [False, True, False]]  # type: ignore[union-attr]
    left[0, 2] = 1.0
    product, moved = drop_empty_positions([Product(left.flip(0), right.flip(0)), lookup])
    assert isinstance(product, Product)
    assert isinstance(moved, Lookup)
    assert product.counts == (2, 1)
    assert product.left[0].tolist() == [[1.0], [1.0]]
    assert product.right[0].tolist() == [[5.0], [7.0]]
    assert (product.left[1, 0].tolist(), product.right[1, 0].tolist()) == ([2.0], [9.0])
    assert moved.sample.tolist() == [1]  # the sample that was the first comes second


def test_nothing_is_changed_where_all_positions_are_something() -> None:
    pieces: list[Piece] = [Product(torch.ones(2, 3, 4), torch.ones(2, 3, 5))]
    assert drop_empty_positions(pieces) == pieces


def test_a_position_of_which_only_late_columns_are_something() -> None:
    left, right = torch.zeros(1, 2, LOOK + 3), torch.ones(1, 2, LOOK + 3)
    left[0, 1, -1] = 1.0
    assert find_occupied(Product(left, right)).tolist() == [[False, True]]  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_nothing_times_what_is_not_finite_is_kept(value: float) -> None:
    left, right = torch.zeros(1, 2, 2), torch.ones(1, 2, 2)
    right[0, 1, 1] = value
    assert find_occupied(Product(left, right)).tolist() == [[False, True]]  # type: ignore[union-attr]


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("size", [SQUARE, ABSOLUTE_VALUE], ids=["squared", "absolute"])
@pytest.mark.parametrize("shape", [(40, 3), (3, 40)], ids=["tall", "wide"])
@pytest.mark.parametrize("most", [0, 1, 4, 9])
@pytest.mark.parametrize("tied", [False, True])
def test_sums_over_ragged_samples(most: int, shape: tuple[int, int], size: Magnitude, tied: bool) -> None:
    torch.manual_seed(0)
    rows, columns = shape
    left, right = torch.randn(7, 9, rows).double(), torch.randn(7, 9, columns).double()
    counts = torch.tensor([most, 0, most // 2, most, 1 if most else 0, most, most // 3])
    scattered = torch.rand(7, 9).argsort(1)  # anywhere, not only at the end
    left.masked_fill_((scattered >= counts[:, None])[..., None], 0.0)
    whole = torch.einsum("ntr,ntc->nrc", left, right)
    pieces: list[Piece] = [Product(left, right)]
    if tied:
        lookup = Lookup.of(torch.randint(rows, (7, 9)), torch.randn(7, 9, columns).double())
        whole.index_put_((lookup.sample, lookup.row), lookup.values, accumulate=True)
        pieces.append(lookup)
    sums, p = GradientSums(size), torch.zeros(shape)
    for _ in range(2):
        sums.add(p, pieces, 7)
    torch.testing.assert_close(sums.values[p], 2 * size.of(whole).sum(0))


class FirstToken(nn.Module):
    """Attention under a padding mask, read at the first position: the gradient of most others is nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 24, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(self.words(ids), src_key_padding_mask=ids == 0)[:, 0])
        return out


@pytest.mark.usefixtures("small_tiles")
def test_a_padded_text_read_at_its_first_token(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    seen: list[int] = []

    def watched(pieces: list[Piece]) -> list[Piece]:
        found = drop_empty_positions(pieces)
        seen.extend(piece.left.shape[1] for piece in found if isinstance(piece, Product))
        return found

    monkeypatch.setattr("tmln.curvature.square_sums.drop_empty_positions", watched)
    model, y = FirstToken().double(), torch.randint(3, (6,))
    ids = torch.randint(1, 11, (6, 9)) * (torch.arange(9) < torch.tensor([[9], [2], [5], [7], [3], [6]]))
    fisher = diagonal_fisher(model, [(ids, y)])
    assert fisher.strategy == "hooks"
    assert_same(fisher, oracle(model, ids, y), 1e-9)
    assert seen.count(1) >= 4  # the head, and what follows attention in the last block
