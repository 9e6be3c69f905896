"""Anchors: what counts as agreement, and the protocols that stand in the table."""

from __future__ import annotations

import pytest

from tests.paper.conftest import TINY
from tmln.analysis.statistics import summarise
from tmln.experiments.config import run_id
from tmln.paper.anchor_table import ITEM, judge, render
from tmln.paper.anchors import ANCHORS, Anchor
from tmln.paper.scales import SCALES
from tmln.paper.study import Study


def anchor(accuracy: float) -> Anchor:
    return Anchor("split-digits", "er", {}, accuracy, "a library", "a protocol")


def test_a_number_agrees_if_it_lies_in_our_interval_widened_by_its_rounding() -> None:
    ours = summarise([0.70, 0.72, 0.74])  # t(0.975, 2) = 4.3027: 72 +- 4.97
    assert judge(anchor(76.9), ours) == "yes"
    assert judge(anchor(77.1), ours) == "no: ours is lower"
    assert judge(anchor(77.0), ours) == "yes"  # a whole number was rounded by up to a half
    assert judge(anchor(66.9), ours) == "no: ours is higher"
    assert judge(anchor(72.0), summarise([0.72])) == "-"


def test_every_protocol_is_a_run_and_none_is_there_twice() -> None:
    names = [run_id(each.config(0)) for each in ANCHORS]
    assert len(set(names)) == len(ANCHORS)
    assert len(ITEM.runs(SCALES["full"])) == sum(each.seeds for each in ANCHORS)


@pytest.mark.parametrize("scale", ["smoke", "cpu"])
def test_other_scales_have_none_and_say_where_they_are(scale: str, study: Study) -> None:
    assert ITEM.runs(SCALES[scale]) == []
    page = render(Study(SCALES[scale], study.store))
    assert page.sheets == []
    assert any("--scale full" in note for note in page.notes)


def test_a_row_has_the_published_number_and_the_difference(study: Study) -> None:
    (row,) = render(study).sheets[0].lines[1:]
    (record,) = render(study).records
    assert row[:4] == ["split-digits", "er", "two tasks", str(TINY.seeds)]
    assert row[5] == "90"
    assert float(row[6]) == pytest.approx(record["mean"] - 90, abs=0.06)
