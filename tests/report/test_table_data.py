"""What the page is given of a table: the summaries, tests and fronts of tmln.analysis, and tiles by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.report.conftest import read, result, swept, usual
from tmln.analysis.fronts import fronts_of
from tmln.analysis.rows import Row, group_by_table, group_rows
from tmln.analysis.significance import assess_significance
from tmln.analysis.summary_text import p_text, write_headline, write_summary
from tmln.analysis.tables import cell, interval
from tmln.metrics import in_order, metric_of
from tmln.report.table_data import MOST_REFERENCES, Table, describe_row, describe_table, make_table

SETS = {"usual": usual, "swept": swept}


def tables(runs: list[dict[str, Any]]) -> list[tuple[Table, dict[str, Any], list[Row]]]:
    """Every table of the runs, as the page has it, with all rows in the order of their numbers."""
    rows = group_rows(read(runs))
    numbers = {id(row): number for number, row in enumerate(rows)}
    metrics = in_order({metric for row in rows for metric in row.values})
    made = [make_table(name, mine, metrics) for name, mine in group_by_table(rows).items()]
    return [(table, describe_table(table, numbers, 0), rows) for table in made]


@pytest.mark.parametrize("name", SETS)
def test_tests_are_those_of_python_for_every_metric_and_reference(name: str) -> None:
    for table, found, rows in tables(SETS[name]()):
        assert (found["headline"], found["summary"]) == (write_headline(table.rows), write_summary(table.rows))
        assert [rows[number].label for number in found["references"]] == [row.label for row in table.rows]
        for metric, tests in found["comparisons"].items():
            named = [row for row in table.rows if row.summary(metric).n and metric_of(metric).is_ranked]
            assert list(tests) == ["", *(row.label for row in named)]
            for reference in [None, *named]:
                wanted = assess_significance(table.rows, metric, reference=reference)
                given = tests["" if reference is None else reference.label]
                assert wanted.reference is not None
                assert rows[given["reference"]] is wanted.reference
                for pair in wanted.pairs:
                    numbers = (pair.plain.mean_difference, pair.p, pair.corrected)
                    there = given["rows"].get(rows.index(pair.row))
                    if not pair.plain.n:
                        assert there is None
                        continue
                    assert (there[0], there[4]) == (pair.plain.n, pair.is_significant)
                    here = [math.nan if one is None else one for one in there[1:4]]
                    assert here == pytest.approx(list(numbers), rel=1e-5, nan_ok=True)


@pytest.mark.parametrize("name", SETS)
def test_summaries_and_bold_are_those_of_python(name: str) -> None:
    for table, *_ in tables(SETS[name]()):
        bold = {m: assess_significance(table.rows, m).bold_labels for m in table.metrics if metric_of(m).is_ranked}
        for row in table.rows:
            given = describe_row(table, row)
            assert given["strong"] == [metric for metric in bold if row.label in bold[metric]]
            assert list(given["metrics"]) == [metric for metric in table.metrics if row.summary(metric).n]
            for metric, one in given["metrics"].items():
                summary = row.summary(metric)
                assert (one["n"], one["mean"]) == (summary.n, summary.mean)
                assert [one[part] for part in ("std", "low", "high")] == [
                    value if math.isfinite(value) else None for value in (summary.std, summary.low, summary.high)
                ]
                if metric_of(metric).percent:
                    assert (one["text"], one["interval"]) == (cell(summary, metric_of(metric)), interval(summary))


def test_fronts_are_those_of_python_also_where_a_seed_lacks_a_metric() -> None:
    runs = swept()
    for one in runs:
        if one["method"] == "er" and one["seed"] == 2:
            one.pop("seconds")
    for table, found, rows in tables(runs):
        assert len(found["fronts"]) == math.comb(len(table.metrics), 2)
        for names, given in found["fronts"].items():
            x, y = names.split()
            wanted = fronts_of(table.rows, x, y)
            labels = [wanted.points[member].label for member in wanted.skyline.members]
            assert [rows[number].label for number in given["all"]] == labels
            for method, own in wanted.methods.items():
                assert [rows[n].label for n in given["methods"][method]] == [
                    wanted.points[m].label for m in own.members
                ]
            for point in wanted.points:
                row = next(row for row in table.rows if row.label == point.label)
                both = given["points"].get(rows.index(row))
                here = both or [[row.summary(m).n, row.summary(m).mean] for m in (x, y)]
                assert [one[:2] for one in here] == [[point.x.n, point.x.mean], [point.y.n, point.y.mean]]
    odd = found_points(runs)
    assert odd == {"er replay.capacity=100", "er replay.capacity=500"}


def found_points(runs: list[dict[str, Any]]) -> set[str]:
    """The rows whose points in FM and seconds are of fewer seeds than their summaries."""
    return {
        rows[number].label
        for table, found, rows in tables(runs)
        if table.name == "split-digits"
        for number in found["fronts"]["fm seconds"]["points"]
    }


def test_a_large_table_offers_one_reference_a_method() -> None:
    grid = [
        result("tmln", 0, 0.9 - 0.01 * k, settings={"step.damping": 0.01 * (k + 1)}) for k in range(MOST_REFERENCES)
    ]
    [(_, found, rows)] = tables([*grid, result("er", 0)])
    assert sorted(rows[number].method for number in found["references"]) == ["er", "tmln"]


def test_tiles_by_hand() -> None:
    """Of a with 90, 91 and 92 and b with 80, 82 and 81, which takes half the time."""
    runs = [result("a", s, 0.9 + 0.01 * s, 0.0, known="er", seconds=4.0) for s in range(3)]
    runs += [result("b", s, (0.8, 0.82, 0.81)[s], 0.1, known="er", seconds=2.0) for s in range(3)]
    rows = group_rows(read(runs))
    table = make_table("t", rows, ["acc", "fm", "peak", "seconds"])
    tiles = describe_table(table, {id(row): k for k, row in enumerate(rows)}, 2)["tiles"]
    named = [(one["what"], one["figure"], one["row"]) for one in tiles]
    p = assess_significance(rows).nearest[0].corrected
    assert named == [
        ("Leads", "91.0 ± 1.0", 0),
        ("Lowest forgetting", "0.0 ± 0.0", 0),  # by the same on every seed: no test applies
        ("Time of a run", "4.0 s", 1),
        ("Holm-corrected p", f"p {p_text(p)}", 1),
        ("Before you trust it", "2", None),
    ]
    assert (tiles[1]["after"], tiles[2]["before"]) == (" from a peak of 91.0", "2.0 times that of ")
    assert (tiles[3]["before"], tiles[3]["after"]) == ("significantly above ", ", 3 seeds")
    alone = make_table("t", rows[:1], ["acc", "seconds"])
    tiles = describe_table(alone, {id(rows[0]): 0}, 0)["tiles"]
    assert [(one["what"], one["figure"], one["before"]) for one in tiles] == [
        ("Highest accuracy", "91.0 ± 1.0", ""),
        ("Time of a run", "4.0 s", "the fastest method"),
        ("Significance", "3 seeds", "no other method to compare with"),
    ]
