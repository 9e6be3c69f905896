"""Rules of the user's own, pieces of gradients, and the two forms of a square."""

from __future__ import annotations

import doctest
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tmln
import tmln.curvature.layer_rules
from tests.curvature.test_fisher import assert_same, oracle
from tests.zoo import sequences
from tmln.curvature import diagonal_fisher
from tmln.curvature.layer_rules import RULES, register_rule
from tmln.curvature.lazy_gradients import Computed, Lookup, Piece, Product
from tmln.curvature.square_sums import GradientSums, prefers_pairs, sum_pair_squares


@pytest.fixture(autouse=True)
def rules_as_before() -> Iterator[None]:
    before = dict(RULES)
    yield
    RULES.clear()
    RULES.update(before)


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.linspace(0.5, 2.0, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), Scale(), nn.Flatten(), nn.Linear(12, 4))


def test_the_documented_example_runs() -> None:
    found = doctest.DocTestFinder().find(
        register_rule, globs={"torch": torch, "nn": nn, "register_rule": register_rule}
    )
    assert len(found) == 1
    assert len(found[0].examples) == 2
    assert doctest.DocTestRunner().run(found[0]).failed == 0


def test_a_registered_rule_is_used_and_exact() -> None:
    torch.manual_seed(0)
    calls: list[tuple[int, ...]] = []

    def rule(module: Scale, a: Tensor, g: Tensor) -> dict[str, Tensor]:
        calls.append(tuple(a.shape))
        return {"factor": (a * g).sum(1)}

    tmln.curvature.register_rule(Scale, rule)
    model, (x, y) = network(), sequences(4)(6)
    fisher = diagonal_fisher(model, [(x, y)])
    assert fisher.strategy == "hooks"
    assert calls == [(6, 4, 3), (6, 4, 3)]  # the chunk, and the check of its order
    assert_same(fisher, oracle(model, x, y), 1e-5)


@pytest.mark.parametrize(
    "rule",
    [
        lambda module, a, g: {"factor": 2 * (a * g).sum(1)},
        lambda module, a, g: {"factor": (a * g).sum((0, 1))},
        lambda module, a, g: {},
    ],
    ids=["wrong", "summed over samples", "nothing"],
)
def test_a_wrong_rule_costs_speed_and_not_exactness(rule: Any, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    register_rule(Scale, rule)
    model, (x, y) = network(), sequences(4)(6)
    with caplog.at_level(logging.WARNING, "tmln.curvature"):
        fisher = diagonal_fisher(model, [(x, y)])
    assert fisher.strategy == "vmap"
    assert_same(fisher, oracle(model, x, y), 1e-5)


def test_what_cannot_be_registered() -> None:
    with pytest.raises(TypeError, match="a class of modules, got Scale"):
        register_rule(Scale(), lambda module, a, g: {})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a function"):
        register_rule(Scale, {})  # type: ignore[arg-type]


# Pieces


def whole(p: Tensor, pieces: Sequence[Piece], size: int) -> Tensor:
    sums = GradientSums()
    sums.add(p, pieces, size)
    return sums.values[p]


@pytest.mark.parametrize("positions", [1, 2, 4, 6])
def test_both_forms_of_a_product_squared(positions: int) -> None:
    torch.manual_seed(0)
    left, right = torch.randn(5, positions, 7).double(), torch.randn(5, positions, 3).double()
    expected = torch.einsum("ntr,ntc->nrc", left, right).square().sum(0)
    torch.testing.assert_close(sum_pair_squares(left, right), expected)
    torch.testing.assert_close(whole(torch.zeros(7, 3), [Product(left, right)], 5), expected)


def test_pairs_are_for_few_positions() -> None:
    assert [t for t in range(1, 200) if prefers_pairs(t)] == [1, 2, 3, 4, 5]


def test_squares_by_pairs_are_never_negative() -> None:
    left, right = torch.randn(1, 2, 40), torch.randn(1, 2, 40)
    left[:, 1], right[:, 1] = left[:, 0], -right[:, 0]  # the gradient is nothing
    assert float(sum_pair_squares(left, right).min()) >= 0.0


@pytest.mark.parametrize(("tile", "block"), [(1, 1), (6, 20), (2**16, 2**19)])
def test_uses_of_all_kinds_are_summed_before_squaring(tile: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    settings = {"TILE": tile, "TILES": block, "BLOCK": block, "SMALL": block}
    for name, value in settings.items() if tile > 6 else (settings | {"LARGE": 1, "ROWS": 1}).items():
        monkeypatch.setattr(f"tmln.curvature.square_sums.{name}", value)
    left, right, again = torch.randn(4, 9, 6).double(), torch.randn(4, 9, 3).double(), torch.randn(4, 9, 6).double()
    indices, g = torch.tensor([[0, 5, 5], [1, 2, 3], [0, 0, 0], [4, 4, 1]]), torch.randn(4, 3, 3).double()
    looked = torch.zeros(4, 6, 3).double()
    for n in range(4):
        for t in range(3):
            looked[n, indices[n, t]] += g[n, t]
    dense = torch.randn(4, 6, 3).double()
    product, second = (torch.einsum("ntr,ntc->nrc", x, right) for x in (left, again))
    lookup, pieces = Lookup.of(indices, g), [Product(left, right), Product(again, right)]
    p = torch.zeros(6, 3)
    torch.testing.assert_close(whole(p, [lookup], 4), looked.square().sum(0))
    torch.testing.assert_close(whole(p, pieces, 4), (product + second).square().sum(0))
    torch.testing.assert_close(whole(p, [lookup, *pieces], 4), (looked + product + second).square().sum(0))
    made = Computed(dense.__getitem__, 18)
    torch.testing.assert_close(
        whole(p, [made, lookup, *pieces], 4), (dense + looked + product + second).square().sum(0)
    )
    rows = [Product(left[..., :2], right, 0), Product(left[..., 2:5], right, 2)]
    product[:, 5] = 0.0
    torch.testing.assert_close(whole(p, [*rows, lookup], 4), (product + looked).square().sum(0))


def test_rows_that_are_padding_stay_at_zero() -> None:
    found = Lookup.of(torch.tensor([[0, 1]]), torch.ones(1, 2, 3), 0)
    assert whole(torch.zeros(2, 3), [found], 1).tolist() == [[0.0] * 3, [1.0] * 3]


def test_the_example_of_the_documents_runs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "fisher.md").read_text()
    block = text.split("## Layers of your own\n\n")[1].split("\n\nThe rule is for")[0]
    names: dict[str, Any] = {"nn": nn, "torch": torch, "tmln": tmln}
    exec(block.removeprefix("```python\n").removesuffix("```"), names)
    torch.manual_seed(0)
    model, (x, y) = nn.Sequential(nn.Linear(3, 3), names["Scale"](3), nn.Flatten(), nn.Linear(12, 4)), sequences(4)(6)
    assert names["Scale"] in RULES
    fisher = diagonal_fisher(model, [(x, y)])
    assert fisher.strategy == "hooks"
    assert_same(fisher, oracle(model, x, y), 1e-5)
