"""Every number on the page is Python's, and no filter changes one: rows are hidden, nothing is computed anew."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from typing import Any

import pytest

from tests.report.browser import Reader, downloaded, everything_drawn, labels, look, row
from tests.report.conftest import keep, read, result, swept, usual
from tmln.analysis.fronts import fronts_of
from tmln.analysis.rows import group_by_table, group_rows
from tmln.analysis.significance import assess_significance
from tmln.analysis.tables import cell, interval, p_cell
from tmln.metrics import metric_of

NONE, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def uneven() -> list[dict[str, Any]]:
    """Methods with two to six seeds, half of them shared, one whose runs agree to the last digit."""
    accuracies = {
        "er": (0.81, 0.84, 0.8, 0.86, 0.79),
        "naive": (0.6, 0.61),
        "tmln": (0.9,) * 4,
        "ewc": (0.7, 0.75, 0.5),
    }
    return [result(m, s, base, 0.05 + 0.01 * s) for m, bases in accuracies.items() for s, base in enumerate(bases)]


SETS = {"usual": usual, "swept": swept, "uneven": uneven}
CELLS = """rows => Object.fromEntries(rows.map(row => [row.dataset.row,
    [...row.querySelectorAll('td > :first-child, td.range .interval, td.ps span, td[data-metric=difference]')].map(
        one => one.textContent).concat(row.querySelector('td').textContent)]))"""


@pytest.fixture(scope="module")
def reader(browser: Any) -> Iterator[Reader]:
    reader = Reader(browser)
    yield reader
    reader.close()


@pytest.fixture(scope="module", params=list(SETS))
def opened(request: pytest.FixtureRequest, reader: Reader, tmp_path_factory: pytest.TempPathFactory) -> Any:
    runs = SETS[request.param]()
    page = reader.open(keep(tmp_path_factory.mktemp("numbers") / "runs", runs), apart=True)
    tables = group_by_table(group_rows(read(runs)))
    return page, tables["split-digits"]


def shown(text: str) -> str:
    return text.strip().replace(NONE, "-").replace(MINUS, "-")


@pytest.mark.parametrize("metric", ["acc", "fm", "seconds"])
def test_the_table_has_pythons_numbers_to_the_digit(opened: Any, metric: str) -> None:
    page, rows = opened
    named = [None, *rows[:2]] if metric_of(metric).is_ranked else [None]
    for reference in named:
        label = "" if reference is None else reference.label.replace(" ", "+")
        look(page, f"#show=all&all=1&m=acc&m=fm&m=int&by={metric}&ref={label}&hide={rows[-1].method}")
        found = assess_significance(rows, metric, reference=reference)
        kept = [one for one in rows if one.method != rows[-1].method]
        assert labels(page) == [one.label for one in kept]
        for one in kept:
            line = row(page, one.label)
            for name in ("acc", "fm", "int"):
                text = line.locator(f'td[data-metric="{name}"] > :first-child').inner_text()
                assert shown(text) == cell(one.summary(name), metric_of(name))
            assert shown(line.locator(".interval").inner_text()) == interval(one.summary(metric), metric_of(metric))
            pair = found.of(one)
            difference = line.locator('td[data-metric="difference"]').inner_text()
            ps = line.locator("td.ps span").all_inner_texts()
            if pair is None:
                assert (difference, shown(ps[0])) == ("reference", "-")
                continue
            unit = 100 if metric_of(metric).percent else 1
            wanted = pair.plain.mean_difference
            sign = "+" if wanted > 0 else ""
            assert shown(difference) == ("-" if math.isnan(wanted) else f"{sign}{unit * wanted:.1f}")
            assert shown(ps[0]) == p_cell(pair.corrected) + "*" * pair.is_significant
            assert [shown(text) for text in ps[1:]] == ([] if math.isnan(pair.p) else [p_cell(pair.p)])


def test_no_filter_changes_a_number(opened: Any) -> None:
    page, rows = opened
    views = ["by=acc", "by=fm", f"by=acc&ref={rows[-1].label.replace(' ', '+')}"]
    methods = list(dict.fromkeys(one.method for one in rows))
    filters = [*(f"hide={name}" for name in methods), "f=seed%3D1", f"f=step%3D{rows[0].fields['step']}"]
    filters.append("&".join(f"hide={name}" for name in methods[1:]))
    for one in views:
        look(page, f"#show=all&all=1&{one}")
        whole = page.eval_on_selector_all("#table tbody tr", CELLS)
        assert len(whole) == len(rows)
        assert page.locator("#hidden").count() == 0
        claims = [page.inner_text(place) for place in ("#headline", "#tiles", "#sentence")]
        for change in filters:
            look(page, f"#show=all&all=1&{one}&{change}")
            left = page.eval_on_selector_all("#table tbody tr", CELLS)
            assert left == {label: whole[label] for label in left}, change
            assert [page.inner_text(place) for place in ("#headline", "#tiles", "#sentence")] == claims
            if len(left) < len(whole):
                said = page.inner_text("#hidden")
                assert f"{len(whole) - len(left)} of {len(whole)}" in said
                assert "still count every configuration" in said


@pytest.mark.parametrize(("x", "y"), [("int", "fm"), ("fm", "int"), ("acc", "seconds")])
def test_the_front_is_pythons_whatever_is_hidden(opened: Any, x: str, y: str) -> None:
    page, rows = opened
    fronts = fronts_of(rows, x, y)
    on_front = {fronts.points[member].label for member in fronts.skyline.members}
    points = {point.label: point for point in fronts.points}
    for hidden in ("", *dict.fromkeys(one.method for one in rows)):
        look(page, f"#x={x}&y={y}&hide={hidden}")
        if page.locator("#tradeoff figure").count() == 0:
            continue
        table = list(csv.DictReader(io.StringIO(downloaded(page, "#tradeoff", "CSV").decode())))
        assert {line["method"] for line in table if line["on_front"] == "true"} == {
            label for label in on_front if label.partition(" ")[0] != hidden
        }
        for line in table:
            if line["method"] in points:  # not so the references
                point = points[line["method"]]
                assert [float(line[x]), float(line[y])] == [point.x.mean, point.y.mean]
        everything_drawn(page)
        stairs = page.evaluate("document.querySelector('#tradeoff .plot').data[0]")
        kept = [fronts.points[m] for m in fronts.skyline.members if fronts.points[m].method != hidden]
        units = [100 if metric_of(name).percent else 1 for name in (x, y)]
        assert stairs["x"] == pytest.approx([units[0] * point.x.mean for point in kept])
        assert stairs["y"] == pytest.approx([units[1] * point.y.mean for point in kept])


def test_curves_and_matrices_are_pythons_means(opened: Any) -> None:
    page, rows = opened
    look(page, "#show=all&all=1")
    everything_drawn(page)
    drawn = page.evaluate(
        "document.querySelector('#time .plot').data.filter(one => one.name).map(one => [one.customdata[0], one.y])"
    )
    kept = [one for one in rows if one.summary("acc").n]
    assert [label for label, _ in drawn] == [one.label for one in kept]
    for (_, curve), one in zip(drawn, kept, strict=True):
        matrices = [run.accuracy for run in one.results if not run.diverged]
        means = [math.fsum(math.fsum(m[k][: k + 1]) / (k + 1) for m in matrices) / len(matrices) for k in range(3)]
        assert curve == pytest.approx([100 * mean for mean in means], abs=1e-4)
