"""The page in a real browser: what stands for a method, sweeps, several benchmarks, files for a paper, phones."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.report.browser import Reader, downloaded, everything_drawn, faults, labels, look, press, row
from tests.report.conftest import LONG, keep, read, swept
from tmln.analysis.notes import CAPTION
from tmln.analysis.ranks import rank_lines, rank_methods, rank_notes
from tmln.analysis.rows import group_by_table, group_rows
from tmln.analysis.significance import assess_significance
from tmln.analysis.summary_text import write_headline
from tmln.analysis.tables import column_lines
from tmln.analysis.text_table import Strong, grid_latex, grid_markdown

NONE = "\N{EN DASH}"
CHOSEN = "tmln step.damping=0.1 step.trajectory=1.0"


ROWS = group_rows(read(swept()))
TABLES = group_by_table(ROWS)
HERE = {one.label: one for one in TABLES["split-digits"]}
SHOWN = ["joint", CHOSEN, "er replay.capacity=500", "naive"]


@pytest.fixture(scope="module")
def reader(browser: Any) -> Iterator[Reader]:
    reader = Reader(browser)
    yield reader
    reader.close()


@pytest.fixture(scope="module")
def opened(reader: Reader, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return reader.open(keep(tmp_path_factory.mktemp("views") / "runs", swept()), apart=True)


@pytest.fixture
def page(opened: Any, reader: Reader) -> Iterator[Any]:
    yield look(opened)
    assert reader.asked == []
    assert reader.wrong == []


def test_it_opens_on_the_benchmark_with_most_runs_and_one_row_a_method(page: Any) -> None:
    assert page.inner_text("#headline") == write_headline(TABLES["split-digits"])
    assert labels(page) == SHOWN
    assert row(page, CHOSEN).locator(".how").inner_text().startswith("chosen on validation data from 14")
    assert row(page, SHOWN[2]).locator(".how.doubtful").inner_text().startswith("chosen on the test data from 2")
    assert row(page, "naive").locator(".how").count() == 0


def test_the_other_configurations_are_behind_their_method(page: Any) -> None:
    press(page.locator('[data-focus="unfold er"]'))
    assert labels(page) == [*SHOWN[:3], "er replay.capacity=100", "naive"]
    assert page.get_attribute('[data-focus="unfold er"]', "aria-expanded") == "true"
    assert page.url.endswith("#unfold=er")
    assert page.locator("dialog[open]").count() == 0
    press(page.locator('[data-focus="unfold er"]'))
    assert labels(page) == SHOWN
    page.select_option('select[data-focus="Configurations"]', "all")
    assert labels(page) == list(HERE)
    assert page.url.endswith("#show=all")
    press(page.locator(".reset"))
    assert labels(page) == SHOWN


def test_pictures_have_one_configuration_of_each_method_at_least(page: Any) -> None:
    """Of 18 configurations the 15 best are joint and tmln: the 12 that are drawn have er and naive all the same."""
    look(page, "#show=all")
    names = page.eval_on_selector_all("#matrices figure .name", "all => all.map(one => one.textContent)")
    assert (len(names), names.count("tmln"), names.count("er"), names.count("naive")) == (12, 9, 1, 1)
    assert "Showing 12 of 18 configurations, one of each method at least." in page.inner_text("#matrices")
    everything_drawn(page)
    drawn = page.evaluate("document.querySelector('#time .plot').data.map(trace => trace.name).filter(Boolean)")
    assert {name.split()[0] for name in drawn} == {"joint", "tmln", "er", "naive"}
    assert any("step.damping=0.1 step.trajectory=1.0" in name for name in drawn)


def test_the_table_fits_a_wide_screen_and_the_headline_three_lines_of_a_phone(page: Any) -> None:
    for fragment in ("", "#show=all", "#unfold=er"):
        look(page, fragment)
        box = "document.querySelector('#table .scroll')"
        assert page.evaluate(f"{box}.scrollWidth <= {box}.clientWidth"), fragment
    assert "rate" in page.inner_text("#table thead")
    lines = """() => {
        const one = document.querySelector('#headline')
        return Math.round(one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight))
    }"""
    for table in TABLES:
        look(page, f"#b={table}", 390)
        assert 1 <= page.evaluate(lines) <= 3
        assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_bullets_are_large_and_stand_where_the_mean_is(page: Any) -> None:
    found = page.eval_on_selector_all(
        "#table .bullet",
        "all => all.map(one => [one.clientWidth, +one.querySelectorAll('line')[2].getAttribute('x1')])",
    )
    assert all(width >= 130 for width, _ in found)
    means = [HERE[label].summary("acc") for label in SHOWN]
    low, high = min(one.low for one in means), max(one.high for one in means)
    assert [at for _, at in found] == pytest.approx([4 + 128 * (one.mean - low) / (high - low) for one in means])
    ends = page.locator("#table .ends span").all_inner_texts()
    assert ends == [f"{100 * low:.1f}", f"{100 * high:.1f}"]


def test_a_sweep_is_drawn_field_by_field_with_every_seed(page: Any) -> None:
    everything_drawn(page)
    titles = page.eval_on_selector_all("#sensitivity h4", "all => all.map(one => one.innerText.trim())")
    assert [" ".join(title.split()) for title in titles] == [
        "tmln step.damping",
        "tmln step.trajectory",
        "er replay.capacity",
    ]
    first = "document.querySelector('#sensitivity .plot')"
    traces = page.evaluate(f"{first}.data.map(({{ mode, x, y }}) => ({{ mode, x, y }}))")
    assert [one["mode"] for one in traces] == ["lines", "markers", "lines", "markers", "markers"]
    line, points, ring = traces[2:]  # through what was chosen, above the other slice
    kin = [one for label, one in HERE.items() if label.startswith("tmln") and label.endswith("trajectory=1.0")]
    by_damping = sorted((float(one.fields["settings.step.damping"]), one.summary("acc").mean) for one in kin)
    assert [10**x for x in line["x"]] == pytest.approx([damping for damping, _ in by_damping])
    assert line["y"] == pytest.approx([100 * mean for _, mean in by_damping])
    assert sorted(points["y"]) == pytest.approx(sorted(100 * v for one in kin for v in one.values["acc"].values()))
    assert (10 ** ring["x"][0], ring["y"][0]) == pytest.approx((0.1, 100 * HERE[CHOSEN].summary("acc").mean))
    found = list(csv.DictReader(io.StringIO(downloaded(page, "#sensitivity", "CSV").decode())))
    assert len(found) == 3 * (14 + 14 + 2)
    assert {line["value"] for line in found if line["field"] == "replay.capacity"} == {"100", "500"}
    look(page, "#by=fm&hide=tmln")
    everything_drawn(page)
    assert page.evaluate(f"{first}.data[1].y") == pytest.approx([15.0] * 6)
    assert "tmln sweep --benchmark apart" in look(page, "#b=apart").inner_text("#sensitivity")


def test_methods_by_benchmarks_with_pythons_ranks(page: Any) -> None:
    found = rank_methods(ROWS)
    assert found is not None
    heading, *lines = rank_lines(found)
    cells = page.eval_on_selector_all(
        "#benchmarks tbody tr", "rows => rows.map(row => [...row.children].map(one => one.innerText.trim()))"
    )
    shown = {line[0]: line[1:] for line in cells}
    assert page.locator("#benchmarks thead th").all_inner_texts() == ["Method", *heading[1:]]
    assert list(shown) == ["tmln", "naive", "er", "joint"]
    for name, *values, rank in lines:
        assert [text.partition("\n")[0] for text in shown[name][:-1]] == values
        assert shown[name][-1] == rank
    assert shown["tmln"][0].endswith("rank 1")
    assert shown["er"] == [NONE, f"{across_value('er replay.capacity=500')} \N{DOUBLE DAGGER}", NONE, NONE]
    for note in rank_notes(found):
        assert note[1:] in page.inner_text("#benchmarks .note")
    assert "chosen on the test data, and is not ranked" in page.inner_text("#benchmarks .note")
    page.select_option('select[data-focus="benchmarks by"]', "fm")
    assert page.url.endswith("#by=fm")
    press(page.locator(f'#benchmarks button:has-text("{LONG}")'))
    assert page.inner_text("#headline") == write_headline(TABLES[LONG])
    table = list(csv.DictReader(io.StringIO(downloaded(page, "#benchmarks", "CSV").decode())))
    assert {line["method"] for line in table} == {"tmln", "naive", "er", "joint"}
    assert downloaded(page, "#benchmarks", "LaTeX").decode().startswith("\\begin{table}")


def across_value(label: str) -> str:
    found = HERE[label].summary("acc")
    return f"{100 * found.mean:.1f} ± {100 * found.std:.1f}"


def test_tables_for_a_paper_are_those_of_show(page: Any) -> None:
    look(page, "#show=all&m=acc&m=fm")
    mine = list(HERE.values())
    columns = ["n", "acc", "fm", "interval", "delta", "p", "holm"]
    lines = column_lines(mine, assess_significance(mine), columns)
    wanted = grid_latex(lines, f"split-digits. {CAPTION}", "tab:split-digits")
    assert downloaded(page, "#table", "LaTeX").decode() == wanted + "\n"
    assert downloaded(page, "#table", "Markdown").decode() == grid_markdown(lines) + "\n"


def test_text_is_written_as_python_writes_it(page: Any) -> None:
    draw = random.Random(5)
    signs = r"ab-1.9%&_#${}\~^±Δ†↑↓<>≤≥[*|é" + "\N{MINUS SIGN}\N{EN DASH}"
    lines = [["".join(draw.choices(signs, k=6)) + "x" for _ in range(4)] for _ in range(60)] + [["-", "-1", "[a", "*"]]
    cells = [[Strong(text) if draw.random() < 0.2 else text for text in line] for line in lines]
    given = [[{"strong": str(text)} if isinstance(text, Strong) else text for text in line] for line in cells]
    assert page.evaluate("lines => tmlnReport.markdown(lines)", given) == grid_markdown(cells)
    there = page.evaluate("lines => tmlnReport.latex(lines, 'a -1 % b', 'tab:a b')", given)
    assert there == grid_latex(cells, "a -1 % b", "tab:a b")


def test_what_is_underlined_is_explained(page: Any) -> None:
    assert "Underlined on yellow is what differs" in page.inner_text("#runs")
    assert page.locator("#runs td mark").count() > 0
    look(page, "#open=naive")
    assert "Underlined on yellow are the settings" in page.inner_text("dialog")


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (390, "dark")], ids=["wide", "phone"])
def test_axe_finds_no_serious_fault(page: Any, width: int, scheme: str) -> None:
    assert faults(look(page, "#unfold=er", width, scheme)) == []
