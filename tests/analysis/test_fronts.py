"""Fronts and hypervolumes against slow, obvious oracles; what runs lack is said, in words and in the picture."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.made import result as made
from tmln.analysis.fronts import (
    Fronts,
    Pair,
    configuration_lines,
    front,
    front_records,
    front_tree,
    fronts_of,
    hypervolume,
    volume_lines,
    volume_notes,
)
from tmln.analysis.rows import group_rows
from tmln.analysis.text_table import records_csv
from tmln.experiments.files import to_json
from tmln.experiments.result import Result
from tmln.plots.figure import check_suffix, save_figure
from tmln.plots.fronts import pareto_figure

EDGE = 6  # of the grid that points are on
coordinate = st.one_of(st.integers(0, EDGE).map(float), st.just(math.nan), st.just(math.inf))
cloud = st.lists(st.tuples(coordinate, coordinate), max_size=12)
both_ways = st.tuples(st.booleans(), st.booleans())


def turned(points: list[Pair], more: tuple[bool, bool]) -> list[Pair]:
    """Small integers so that less is better."""
    return [(EDGE - x if more[0] else x, EDGE - y if more[1] else y) for x, y in points]


def dominates(a: Pair, b: Pair) -> bool:
    return a[0] <= b[0] and a[1] <= b[1] and a != b


@given(cloud, both_ways)
def test_the_front_is_what_no_other_point_dominates(points: list[Pair], more: tuple[bool, bool]) -> None:
    finite = {n: p for n, p in enumerate(turned(points, more)) if all(map(math.isfinite, p))}
    expected = {n for n, p in finite.items() if not any(dominates(q, p) for q in finite.values())}
    found = front(points, more)
    assert set(found) == expected
    assert len(found) == len(expected)
    assert [finite[n][0] for n in found] == sorted(finite[n][0] for n in found)


@given(cloud, both_ways)
def test_the_hypervolume_counts_the_unit_squares_that_are_dominated(
    points: list[Pair], more: tuple[bool, bool]
) -> None:
    finite = [p for p in turned(points, more) if all(map(math.isfinite, p))]
    squares = sum(any(x <= i and y <= j for x, y in finite) for i in range(EDGE) for j in range(EDGE))
    reference = (0.0 if more[0] else float(EDGE), 0.0 if more[1] else float(EDGE))
    assert hypervolume(points, reference, more) == squares


def test_by_hand() -> None:
    points = [(1.0, 3.0), (2.0, 1.0), (2.0, 2.0), (3.0, 1.0), (1.0, 3.0), (math.nan, 0.0)]
    assert front(points) == [0, 4, 1]  # a duplicate is on the front too, ties in one metric are not
    assert hypervolume(points, (4.0, 4.0)) == 3 * 1 + 2 * 2
    assert front([]) == []
    assert hypervolume([], (1.0, 1.0)) == 0.0
    assert hypervolume([(1.0, 0.0), (2.0, -5.0)], (1.0, 1.0)) == 0.0  # at and beyond the reference
    assert hypervolume([(-1.0, 0.5)], (1.0, 1.0)) == 1.0  # less than nothing forgotten counts
    with pytest.raises(ValueError, match="two finite numbers"):
        hypervolume([(0.0, 0.0)], (math.nan, 1.0))


def result(method: str, seed: int, x: float | None, y: float, **more: Any) -> Result:
    found = {"oracle": "none"} if x is None else {"oracle": "prefix", "metrics": {"int": x}}
    return made(method, seed, 1 - y, y, **found, **more)


def strength(value: float) -> dict[str, float]:
    return {"penalty.strength": value}


RUNS = [
    *(result("tmln", s, 0.1 + 0.02 * s, 0.3) for s in range(2)),
    *(result("ewc++", s, 0.3, 0.2, settings=strength(1)) for s in range(2)),
    *(result("ewc++", s, 0.4, 0.6, settings=strength(2)) for s in range(2)),
    *(result("ewc++", s, 0.5, 0.1 + s, settings=strength(3), diverged="boom") for s in range(2)),
    *(result("joint", s, None, 0.0) for s in range(2)),
    *(result("er", s, None, 0.01) for s in range(2)),
]


def fronts(runs: list[Result] = RUNS, **axes: str) -> Fronts:
    return fronts_of(group_rows(runs), **axes)


def test_fronts_of_methods_and_of_all() -> None:
    found = fronts()
    assert [point.label for point in found.points] == [
        "er",
        "ewc++ penalty.strength=1",
        "ewc++ penalty.strength=2",
        "ewc++ penalty.strength=3",
        "tmln",
    ]
    assert found.points[4].at == pytest.approx((0.11, 0.3))
    assert {name: own.members for name, own in found.methods.items()} == {"er": (), "ewc++": (1,), "tmln": (4,)}
    assert found.skyline.members == (4, 1)
    assert (found.reference, found.ideal) == ((1.0, 1.0), (-1.0, -1.0))
    assert found.methods["ewc++"].hypervolume == pytest.approx(0.7 * 0.8 / 4)  # of a square of two by two
    assert found.skyline.hypervolume == pytest.approx((0.7 * 0.8 + 0.19 * 0.7) / 4)
    assert math.isnan(found.methods["er"].hypervolume)


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=6))
def test_hypervolumes_are_shares_of_the_whole(points: list[Pair]) -> None:
    """Also where forgetting and intransigence are negative; 1 is a point at the ideal, 1/4 one at 0, 0."""
    found = fronts([result("er", 0, x, y, settings=strength(n)) for n, (x, y) in enumerate(points)])
    assert 0.0 <= found.skyline.hypervolume <= 1.0
    assert all(0.0 <= own.hypervolume <= found.skyline.hypervolume for own in found.methods.values())


@pytest.mark.parametrize(("at", "share"), [((-1.0, -1.0), 1.0), ((0.0, 0.0), 0.25), ((1.0, -1.0), 0.0)])
def test_shares_by_hand(at: Pair, share: float) -> None:
    assert fronts([result("er", 0, *at)]).skyline.hypervolume == share


def test_where_nothing_lies_between_ideal_and_worst_there_is_no_share() -> None:
    assert math.isnan(fronts([result("er", 0, 0.1, 0.2, seconds=0.0)], x="acc", y="seconds").skyline.hypervolume)


def test_no_reference_is_on_a_front() -> None:
    runs = [result(m, 0, 0.1, 0.1) for m in ("er", "joint", "independent")]
    found = fronts(runs)
    assert [point.label for point in found.points] == ["er"]
    assert "independent sees each task alone: it is the reference, and on no front" in found.notes
    assert "INT is against joint training on tasks 1..k" in "\n".join(found.notes)
    assert not any("INT" in note for note in fronts(runs, x="acc", y="seconds").notes)


def test_what_could_not_be_placed_is_said() -> None:
    said = "\n".join(fronts().notes)
    assert "runs that diverged are left out of means: ewc++ penalty.strength=3: seeds 0, 1" in said
    assert "ewc++ penalty.strength=3: no INT and no FM, so on no front" in said
    assert "er: no INT, so on no front" in said
    assert "joint sees all data at once" in said


def test_no_reference_at_all_is_one_sentence_and_no_zero() -> None:
    found = fronts([result(m, s, None, 0.2) for m in ("er", "tmln") for s in range(2)])
    assert found.skyline.members == ()
    assert "INT is not there: no joint reference has run (tmln run --int-reference prefix)" in found.notes
    assert "every configuration: no INT, so on no front" in found.notes
    assert [line[2] for line in configuration_lines(found)[1:]] == ["-", "-"]
    assert [line[-1] for line in volume_lines(found)[1:]] == ["-", "-", "-"]


def test_a_point_is_of_the_seeds_that_have_both_metrics() -> None:
    found = fronts([result("er", 0, 0.1, 0.2), result("er", 1, None, 0.9), result("tmln", 0, 0.3, 0.1)])
    assert found.points[0].at == (0.1, 0.2)
    assert found.points[0].y.n == 1
    undefined = fronts([result("er", 0, 0.1, 0.2), result("er", 1, math.nan, 0.9), result("er", 2, 0.3, math.inf)])
    assert undefined.points[0].at == (0.1, 0.2)


def test_one_seed_is_said() -> None:
    said = fronts([result("er", 0, 0.1, 0.2), result("tmln", 0, 0.3, 0.1)]).notes
    assert "one seed only: no spread, no interval, no test: every row" in said


def test_other_metrics_bring_their_direction_and_reference() -> None:
    found = fronts(
        [result("er", 0, 0.1, 0.2, seconds=3.0), result("tmln", 0, 0.3, 0.5, seconds=1.0)], x="acc", y="seconds"
    )
    assert [found.points[n].label for n in found.skyline.members] == ["er", "tmln"]  # the most accurate first
    assert found.reference == (0.0, 3.0)  # of seconds there is no worst but the longest
    assert found.ideal == (1.0, 0.0)
    assert found.skyline.hypervolume == pytest.approx(0.5 * 2.0 / 3.0)
    assert not any("INT" in note for note in found.notes)


@pytest.mark.parametrize(
    ("axes", "message"),
    [({"x": "fm"}, "two different metrics"), ({"x": "itn"}, "unknown metric 'itn'; did you mean 'int'")],
    ids=["twice", "misspelt"],
)
def test_wrong_axes_are_refused(axes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fronts_of(group_rows(RUNS), **axes)


def test_benchmarks_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="one benchmark at a time, not of a, b"):
        fronts([result("er", 0, 0.1, 0.1, benchmark=name) for name in "ab"])


def test_every_format_says_the_same() -> None:
    found = fronts()
    table = list(csv.DictReader(records_csv(front_records([found])).splitlines()))
    assert [(line["method"], line["own_front"], line["skyline"]) for line in table] == [
        ("er", "0", "0"),
        ("ewc++", "1", "1"),
        ("ewc++", "0", "0"),
        ("ewc++", "0", "0"),
        ("tmln", "1", "1"),
    ]
    assert table[0]["int_mean"] == table[0]["method_hypervolume"] == ""
    plain = json.loads(to_json(front_tree([found])))[0]
    assert plain["skyline"]["front"] == ["tmln", "ewc++ penalty.strength=1"]
    assert plain["methods"]["er"]["hypervolume"] is None
    assert plain["configurations"][4]["int"]["mean"] == pytest.approx(0.11)
    lines = configuration_lines(found)
    assert lines[5] == ["tmln", "2", "11.0 ± 1.4", "30.0 ± 0.0", "all"]
    assert volume_lines(found)[2] == ["ewc++", "3", "1", "1", "0.1400"]
    said = "\n".join(volume_notes(found))
    assert "between the ideal (INT -100 %, FM -100 %) and the worst (INT 100 %, FM 100 %); 1 is all of it" in said
    assert (plain["reference"], plain["ideal"]) == ([1.0, 1.0], [-1.0, -1.0])


def test_the_picture_outlines_each_front_and_the_skyline_in_black(tmp_path: Path) -> None:
    found = fronts()
    figure = pareto_figure([found])
    lines = {line.get_color(): line for line in figure.axes[0].lines if np.shape(line.get_xdata()) == (2,)}
    assert np.asarray(lines["black"].get_xydata()) == pytest.approx(np.array([[11.0, 30.0], [30.0, 20.0]]))
    assert lines["black"].get_drawstyle() == "steps-post"
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[:3] == ["er (not placed)", "ewc++", "tmln"]
    assert texts[-2:] == ["1  tmln", "2  ewc++ penalty.strength=1"]
    for name in ("front.png", "front.svg", "front.pdf"):
        assert save_figure(figure, tmp_path / "new" / name).stat().st_size > 1000
    again = save_figure(pareto_figure([found]), tmp_path / "again.svg")
    assert again.read_bytes() == (tmp_path / "new" / "front.svg").read_bytes()


def test_pictures_of_nothing_and_of_several_benchmarks(tmp_path: Path) -> None:
    empty = fronts([result("er", s, None, 0.2, benchmark="other") for s in range(2)])
    figure = pareto_figure([fronts(), empty])
    assert [axes.get_title() for axes in figure.axes] == ["split-digits", "other"]
    assert any("no joint reference has run" in text.get_text() for text in figure.axes[1].texts)
    save_figure(figure, tmp_path / "two.png")


def test_panels_share_their_axes_where_they_are_to_be_compared() -> None:
    far = fronts([result("er", s, 0.9, 0.8, benchmark="other") for s in range(2)])
    for shared in (False, True):
        left, right = pareto_figure([fronts(), far], shared=shared).axes
        alike = (left.get_xlim(), left.get_ylim()) == (right.get_xlim(), right.get_ylim())
        assert alike is shared


def test_a_wrong_suffix_is_refused() -> None:
    with pytest.raises(ValueError, match=r"NAME\.png, NAME\.svg, NAME\.pdf; got 'x\.jpg'"):
        check_suffix(Path("x.jpg"))


def test_of_a_method_with_validation_data_what_was_chosen_on_them_stands_for_it() -> None:
    """The other one is better on the tests, and on its method's own front alone."""
    runs = [
        made("er", seed, 0.5, 0.1 * a, settings={"a": a}, metrics={"int": 0.1 * a, "val_acc": 0.2 * a})
        for seed in (0, 1)
        for a in (1, 2)
    ]
    found = fronts_of(group_rows([*runs, *(made("si", seed, 0.5, 0.3, metrics={"int": 0.15}) for seed in (0, 1))]))
    assert [found.points[n].label for n in found.skyline.members] == ["si", "er a=2"]
    assert [found.points[n].label for n in found.methods["er"].members] == ["er a=1"]
    assert any("only the configuration chosen" in note for note in found.notes)
