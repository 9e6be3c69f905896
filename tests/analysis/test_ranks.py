"""Methods over several tables: ranks by hand, Friedman and Nemenyi against scipy and printed tables."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from scipy import stats

from tests.analysis.made import result
from tmln.analysis.ranks import (
    MethodRanks,
    critical_difference,
    explain_missing_ranks,
    friedman,
    rank_lines,
    rank_methods,
    rank_notes,
    rank_records,
    ranks,
)
from tmln.analysis.rows import Row, group_rows
from tmln.plots.figure import save_figure
from tmln.plots.ranks import ranks_figure

PLACES: dict[str, tuple[float, ...]] = {"a": (0.9, 0.8, 0.7), "b": (0.8, 0.9, 0.6), "c": (0.5, 0.4, 0.3)}


def rows(means: dict[str, tuple[float, ...]] = PLACES) -> list[Row]:
    return group_rows(
        [
            result(method, seed, value + 0.01 * seed, benchmark=f"bench{k}")
            for method, values in means.items()
            for k, value in enumerate(values)
            for seed in range(2)
        ]
    )


def test_ranks_by_hand() -> None:
    """a is first, second, first: 4/3; b 5/3; c 3. chi^2 = 12/(3*3*4) (16 + 25 + 81) - 3*3*4 = 4.667."""
    found = rank_methods(rows())
    assert found is not None
    assert found.tables == ("bench0", "bench1", "bench2")
    assert found.ranks == pytest.approx({"a": 4 / 3, "b": 5 / 3, "c": 3.0})
    assert {method: list(mine.values()) for method, mine in found.places.items()} == {
        "a": [1.0, 2.0, 1.0],
        "b": [2.0, 1.0, 2.0],
        "c": [3.0, 3.0, 3.0],
    }
    assert found.friedman == pytest.approx(math.exp(-4.6666667 / 2))  # two degrees of freedom
    assert ranks([3.0, 1.0, 3.0, 0.0]) == [3.5, 2.0, 3.5, 1.0]


def test_where_there_are_none_it_is_said_what_there_is() -> None:
    lone = [row for row in rows({"a": (0.9, 0.8), "b": (0.8,)}) if (row.method, row.benchmark) != ("a", "bench0")]
    assert rank_methods(lone) is None
    assert explain_missing_ranks(lone) == "bench0 (b), bench1 (a)"
    assert explain_missing_ranks([]) == "no runs"


def test_demsars_example() -> None:
    """Four classifiers on 14 data sets: his critical difference is 2.569 sqrt(4 * 5 / (6 * 14)) = 1.25."""
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=5e-3)


def test_friedman_is_scipys_with_equal_ranks_too() -> None:
    draw = random.Random(3)
    for tables, methods in ((3, 3), (5, 4), (12, 7)):
        for values in (6, 1000):
            costs = [[draw.randint(0, values) for _ in range(methods)] for _ in range(tables)]
            wanted = stats.friedmanchisquare(*zip(*costs, strict=True)).pvalue
            assert friedman([ranks(row) for row in costs]) == pytest.approx(wanted)
    assert friedman([[1.5, 1.5], [1.5, 1.5]]) == 1.0


def test_cliques_are_the_largest_groups_within_the_difference() -> None:
    made = {"a": 1.0, "b": 1.8, "c": 2.5, "d": 6.0}
    assert MethodRanks("acc", (), {}, made, 0.01, 1.0).cliques == [("a", "b"), ("b", "c")]
    assert MethodRanks("acc", (), {}, made, 0.01, 2.0).cliques == [("a", "b", "c")]
    assert MethodRanks("acc", (), {}, made, 0.01, 0.1).cliques == []


def test_a_method_that_is_not_everywhere_has_no_rank() -> None:
    found = rank_methods(rows({**PLACES, "d": (0.99,)}))
    assert found is not None
    heading, *body = rank_lines(found)
    assert heading == ["method", "bench0", "bench1", "bench2", "mean rank"]
    assert body[0] == ["a", "90.5 ± 0.7", "80.5 ± 0.7", "70.5 ± 0.7", "1.33"]
    assert body[-1] == ["d", "99.5 ± 0.7", "-", "-", "-"]
    assert "no method ranks above another: Friedman p = 0.097" in rank_notes(found)[1]
    assert rank_records(found)[0]["mean_rank"] == pytest.approx(4 / 3)
    assert len(rank_records(found)) == 10


def test_where_there_is_nothing_to_rank() -> None:
    assert rank_methods(rows({"a": (0.9, 0.8)})) is None
    assert rank_methods(rows({"a": (0.9,), "b": (0.8,)})) is None
    assert rank_methods([]) is None


@pytest.mark.parametrize("tables", [3, 9])
def test_the_diagram_has_every_method_and_what_is_not_told_apart(tables: int, tmp_path: Path) -> None:
    found = rank_methods(
        rows({name: tuple(value for _ in range(tables // 3) for value in v) for name, v in PLACES.items()})
    )
    assert found is not None
    assert (found.friedman < 0.05) == (tables == 9)
    figure = ranks_figure(found)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[-3:] == ["a 1.33", "b 1.67", "c 3.00"]
    assert save_figure(figure, tmp_path / "ranks.svg").stat().st_size > 1000
    if tables == 9:
        assert "significantly: a = b" in rank_notes(found)[1]
