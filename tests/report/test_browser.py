"""The page in a real browser: the right numbers, and controls that work with mouse and keyboard."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import Reader, downloaded, everything_drawn, faults, labels, look, press, row, until
from tests.report.conftest import keep, read, result, usual
from tmln.analysis.rows import group_rows
from tmln.analysis.significance import assess_significance
from tmln.analysis.summary_text import write_headline, write_summary
from tmln.analysis.tables import cell, interval
from tmln.evaluation_counts import pack_confusion
from tmln.metrics import METRICS, metric_of

SECTIONS = [
    "summary",
    "table",
    "matrices",
    "classes",
    "time",
    "seeds",
    "sensitivity",
    "tradeoff",
    "cost",
    "landscape",
    "runs",
    "warnings",
]
ROWS = {one.label: one for one in group_rows(read(usual()))}
SHOWN = [label for label in ROWS if label != "tmln step.damping=0.5"]
DARK, LIGHT = "rgb(18, 20, 23)", "rgb(247, 247, 244)"
NONE, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
GROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def reader(browser: Any) -> Iterator[Reader]:
    reader = Reader(browser)
    yield reader
    reader.close()


@pytest.fixture(scope="module")
def opened(reader: Reader, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Opened once: the address alone makes a view."""
    return reader.open(keep(tmp_path_factory.mktemp("pages") / "runs", usual()), apart=True)


@pytest.fixture
def page(opened: Any, reader: Reader) -> Iterator[Any]:
    yield look(opened)
    assert reader.asked == []
    assert reader.wrong == []


def test_every_section_with_the_numbers_of_the_table(page: Any) -> None:
    assert page.eval_on_selector_all("main section", "all => all.map(one => one.id)") == SECTIONS
    look(page, "#show=all")
    assert labels(page) == list(ROWS)
    for label, one in ROWS.items():
        cells = row(page, label).locator("td")
        for at, metric in enumerate(("acc", "fm", "peak", "int"), 1):
            text = cells.nth(at).locator("> :first-child").inner_text()
            assert text.replace(NONE, "-") == cell(one.summary(metric), metric_of(metric))
        assert cells.nth(6).inner_text().strip().replace(NONE, "-") == interval(one.summary("acc"))
    assert page.inner_text("#headline") == write_headline(list(ROWS.values()))
    assert page.inner_text("#sentence") == write_summary(list(ROWS.values()))
    strong = {
        label: [m for m in METRICS if label in assess_significance(list(ROWS.values()), m).bold_labels]
        for label in ROWS
    }
    found = page.eval_on_selector_all("#table strong", "all => all.map(one => one.parentElement.dataset.metric)")
    assert found == [metric for label in ROWS for metric in strong[label]]


def test_every_picture_is_drawn_when_it_comes_into_sight(page: Any) -> None:
    everything_drawn(page)
    drawn = page.eval_on_selector_all(".plot", "all => all.map(one => !!one.querySelector('svg.main-svg'))")
    assert drawn == [True] * (len(SHOWN) + 6)  # a matrix a method, and the six other pictures


def test_no_filter_changes_what_is_claimed(page: Any) -> None:
    said, tiles = page.inner_text("#sentence"), page.inner_text("#tiles")
    for hidden in (["tmln"], ["er", "naive", "joint", "ewc"], ["tmln", "er", "naive", "joint", "ewc"]):
        look(page, "#" + "&".join(f"hide={name}" for name in hidden))
        assert (page.inner_text("#sentence"), page.inner_text("#tiles")) == (said, tiles)


def test_rates_that_differ_are_a_column(reader: Reader, tmp_path: Path) -> None:
    # er has momentum 0.9, which makes ten times the rate of it
    runs = [{**one, "effective_rate": 0.1 if one["method"] == "tmln" else 0.001} for one in usual()]
    page = reader.open(keep(tmp_path / "runs", runs))
    assert row(page, "er").locator('td[data-metric="rate"]').inner_text() == "0.01"
    assert row(page, "tmln step.damping=0.1").locator('td[data-metric="rate"]').inner_text() == "0.1"


def test_rounding_is_pythons(page: Any) -> None:
    draw = random.Random(1)
    values = [0.25, 0.75, -0.25, 2.5, 0.35, 12.25, 12.75, 0.0, -0.04, 0.0625]
    values += [draw.uniform(-200, 200) for _ in range(300)]
    for digits in (0, 1, 2, 3):
        there = page.evaluate("([v, d]) => v.map(one => tmlnReport.fixed(one, d))", [values, digits])
        assert there == [f"{value:.{digits}f}" for value in values]


def test_methods_and_fields_are_filtered_and_the_address_says_so(page: Any) -> None:
    page.uncheck('input[data-method="tmln"]')
    assert labels(page) == [label for label in SHOWN if not label.startswith("tmln")]
    assert page.url.endswith("#hide=tmln")
    press(page.locator('input[data-method="tmln"]'))
    page.select_option('select[data-focus="Field"]', "step.damping")
    page.select_option('select[data-focus="Value"]', "0.5")
    assert labels(page) == ["tmln step.damping=0.5"]
    assert page.url.endswith("#f=step.damping%3D0.5")
    press(page.locator('.chips button:has-text("step.damping=0.5")'))
    assert labels(page) == SHOWN
    page.select_option('select[data-focus="Field"]', "penalty")
    page.select_option('select[data-focus="Value"]', "ewc")
    assert labels(page) == ["ewc"]
    press(page.locator(".reset"))
    assert "#" not in page.url
    assert labels(page) == SHOWN


def test_seeds_are_filtered(page: Any) -> None:
    look(page, "#f=seed%3D2")
    assert labels(page) == [label for label in SHOWN if label not in ("er", "ewc")]
    assert row(page, "naive").locator("td").nth(0).inner_text() == "3"  # a filter hides, and computes nothing anew
    everything_drawn(page)
    points = (
        "document.querySelector('#seeds .plot').data.filter(one => one.mode === 'markers').map(one => one.x.length)"
    )
    assert page.evaluate(points) == [1, 1] * 3  # of each row the mean, and the one seed


def test_columns_metric_and_reference_are_chosen(page: Any) -> None:
    press(page.locator(".columns summary"))
    page.uncheck('input[data-metric="seconds"]')
    page.uncheck('input[data-metric="int"]')
    page.uncheck('input[data-metric="peak"]')
    headings = page.eval_on_selector_all("#table thead th", "all => all.map(one => one.innerText.trim())")
    assert [text.partition("\n")[0] for text in headings] == [
        *("Method", "n", "ACC % ↑", "FM % ↓", "ACC 95%", "Δ ACC", "corrected p"),
    ]
    page.select_option('select[data-focus="by"]', "fm")
    page.select_option('select[data-focus="with"]', "naive")
    difference = ROWS["er"].compare_with(ROWS["naive"], "fm").mean_difference
    assert row(page, "er").locator("td").nth(4).inner_text() == f"{100 * difference:.1f}".replace("-", MINUS)
    assert row(page, "naive").locator("td").nth(4).inner_text() == "reference"


def test_sorting_by_a_click(page: Any) -> None:
    press(page.locator('[data-sort="fm"]'))
    assert labels(page) == sorted(SHOWN, key=lambda label: ROWS[label].summary("fm").mean)
    assert page.get_attribute("#table th:has([data-sort=fm])", "aria-sort") == "ascending"
    press(page.locator('[data-sort="fm"]'))
    assert page.get_attribute("#table th:has([data-sort=fm])", "aria-sort") == "descending"
    assert labels(page)[0] == "naive"
    assert page.evaluate("document.activeElement.dataset.sort") == "fm"  # the keyboard stays where it was


def test_a_row_opens_its_runs_with_mouse_and_keyboard(page: Any) -> None:
    press(row(page, "ewc").locator("td").first)
    dialog = page.locator("dialog[open]")
    assert dialog.locator("tbody tr").count() == 2
    assert "diverged: the loss is nan" in dialog.inner_text()
    assert "tmln run --benchmark split-digits --method ewc --seeds 2" in dialog.inner_text()
    assert page.url.endswith("#open=ewc")
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    until(page, "!location.hash")
    page.focus('[data-focus="row naive"]')
    page.keyboard.press("Enter")
    assert page.locator("#details-title").inner_text().strip() == "naive"
    press(page.locator("dialog button:has-text('Close')"))
    until(page, "!location.hash")
    look(page, "#open=naive")
    assert page.locator("dialog[open]").count() == 1


def test_a_point_opens_its_runs(page: Any) -> None:
    look(page, "#hide=naive&hide=ewc&hide=tmln&hide=joint")
    page.locator("#tradeoff .plot").evaluate("one => one.scrollIntoView()")
    point = page.locator("#tradeoff .plot .scatterlayer .point").first
    point.wait_for()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    until(page, "document.querySelector('#tradeoff .hoverlayer').textContent.includes('2 seeds')")
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("dialog[open]")
    assert page.locator("#details-title").inner_text().strip() == "er"


def test_one_seed_of_a_matrix_on_demand(page: Any) -> None:
    place = '#matrices figure[data-figure*="damping=0.1"]'
    numbers = f"() => [...document.querySelectorAll('{place} .textpoint')].map(one => one.textContent)"
    page.locator(place).scroll_into_view_if_needed()
    page.wait_for_selector(f"{place} .textpoint")
    assert page.evaluate(numbers)[:4] == ["96.0", "0.0", "0.0", "94.0"]  # means of 95, 96, 97 and of 93, 94, 95
    page.select_option('select[data-focus="matrix seed"]', "2")
    page.wait_for_selector(f"{place} .textpoint")
    assert page.evaluate(numbers)[:4] == ["97.0", "0.0", "0.0", "95.0"]


def test_downloads_hold_what_is_shown(page: Any) -> None:
    look(page, "#show=all&hide=joint")
    kept = {label: one for label, one in ROWS.items() if label != "joint"}
    table = list(csv.DictReader(io.StringIO(downloaded(page, "#table", "CSV").decode())))
    assert [line["method"] for line in table] == list(kept)
    for line, one in zip(table, kept.values(), strict=True):
        assert float(line["acc_mean"]) == pytest.approx(one.summary("acc").mean, rel=1e-12)
        assert line["acc_std"] == "" if one.summary("acc").n == 1 else float(line["acc_std"]) > 0
    assert [line["method"] for line in json.loads(downloaded(page, "#table", "JSON"))] == list(kept)
    seeds = list(csv.DictReader(io.StringIO(downloaded(page, "#seeds", "CSV").decode())))
    assert {(line["method"], int(line["seed"])) for line in seeds if line["method"] in ("er", "ewc")} == {
        ("er", 0),
        ("er", 1),
        ("ewc", 0),
    }
    picture = downloaded(page, "#time", "SVG").decode()
    assert picture.startswith("<svg")
    assert "naive" in picture
    assert downloaded(page, "#time", "PNG").startswith(b"\x89PNG")


def test_dark_and_light(page: Any) -> None:
    look(page, scheme="dark")
    assert page.evaluate(GROUND) == DARK
    press(page.locator("#theme"))
    assert page.evaluate(GROUND) == LIGHT
    assert page.url.endswith("#theme=light")
    assert look(page, "#theme=dark").evaluate(GROUND) == DARK


def test_a_phone_needs_no_sideways_scrolling(page: Any) -> None:
    look(page, width=390)
    everything_drawn(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert not page.is_visible('input[data-method="er"]')
    press(page.locator("#view-toggle"))
    page.uncheck('input[data-method="er"]')
    assert "er" not in labels(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    press(page.locator("#view-toggle"))


def test_the_sections_are_reached_on_a_phone(page: Any) -> None:
    """The entries have the width of the screen, and the one in sight is within it."""
    look(page, width=390)
    assert page.evaluate("document.getElementById('nav').clientWidth") >= 350
    press(page.locator("#nav a[data-section=table]"))
    for name in ("seeds", "cost"):
        page.evaluate(f"document.getElementById('{name}').scrollIntoView()")
        link = f"document.querySelector('#nav a[data-section={name}]')"
        until(page, f"{link}.hasAttribute('aria-current')")
        left, right = page.evaluate(f"(({{left, right}}) => [left, right])({link}.getBoundingClientRect())")
        assert left >= 0
        assert right <= 390


def test_axes_show_the_range_of_what_is_shown(page: Any) -> None:
    look(page, "#band=none")
    everything_drawn(page)
    ranges = "[...document.querySelectorAll('#time .plot')].map(one => one.layout.yaxis.range)"
    means = [
        100 * point[1] for point in page.evaluate("window.tmlnReport.view().rows.flatMap(r => r.row.curves.average)")
    ]
    for low, high in page.evaluate(ranges)[:1]:
        assert min(means) - 10 <= low <= min(means)
        assert max(means) <= high <= max(means) + 10


def test_warnings_are_of_what_is_shown(reader: Reader, tmp_path: Path) -> None:
    """Two methods with the same numbers are named, unless one is hidden."""
    page = reader.open(keep(tmp_path / "runs", [result("er", 0), result("naive", 0), result("tmln", 0, base=0.8)]))
    assert "er, naive" in page.inner_text("#warnings") or "naive, er" in page.inner_text("#warnings")
    page.uncheck('input[data-method="er"]')
    assert "indistinguishable" not in page.inner_text("#warnings")
    page.check('input[data-method="er"]')
    assert "indistinguishable" in page.inner_text("#warnings")


def test_on_paper_all_is_drawn_and_light(page: Any) -> None:
    look(page, "#theme=dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(GROUND) == LIGHT
    drawn = page.eval_on_selector_all(".plot", "all => all.map(one => !!one.querySelector('svg.main-svg'))")
    assert all(drawn)
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(GROUND) == DARK


def test_the_sections_are_reached_by_keyboard(page: Any) -> None:
    page.evaluate("document.activeElement.blur(); document.querySelector('.skip').focus()")
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") == 0  # seen when it has the keyboard
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "table-title"
    assert page.url.endswith("#at=table")


def test_classes_are_drawn_with_the_numbers_that_were_counted(reader: Reader, tmp_path: Path) -> None:
    counts = [[8, 2, 0], [1, 9, 0], [0, 5, 5]]
    texts = [pack_confusion(table) for table in ([[10, 0, 0], [10, 0, 0], [10, 0, 0]], counts, counts)]
    counted: dict[str, Any] = {"confusion": texts, "class_names": ["cat", "<b>dog</b>", "owl"]}
    page = reader.open(keep(tmp_path / "runs", [*(result("er", s, **counted) for s in (0, 1)), result("tmln", 0)]))
    everything_drawn(page)
    assert page.locator("#classes figure").count() == 2  # of the one row whose runs counted
    written = page.eval_on_selector_all("#classes text", "all => all.map(one => one.textContent)")
    assert {"80", "20", "90", "50", "cat", "<b>dog<\N{HORIZONTAL ELLIPSIS}", "owl"} <= set(written)
    bars = "document.querySelectorAll('#classes .plot')[1].data[0].y"
    assert page.evaluate(bars) == [80, 90, 50]
    table = downloaded(page, "#classes figure", "CSV").decode()
    assert [line["samples"] for line in csv.DictReader(io.StringIO(table))] == ["16", "4", "2", "18", "10", "10"]
    look(page, "#after=1")
    everything_drawn(page)
    assert page.evaluate(bars) == [100, 0, 0]
    assert (reader.asked, reader.wrong) == ([], [])


def test_what_was_not_measured_names_its_command(page: Any) -> None:
    assert "did not count classes" in page.inner_text("#classes")
    assert "tmln overhead --benchmark split-digits" in page.inner_text("#cost")
    assert "tmln landscape --benchmark split-digits" in page.inner_text("#landscape")
    assert "--runs runs" in page.inner_text("#landscape")
    assert "tmln barrier --benchmark split-digits" in page.inner_text("#landscape")


@pytest.mark.parametrize(
    ("width", "scheme", "fragment"),
    [(1300, "light", ""), (390, "dark", ""), (1300, "dark", "#open=er")],
    ids=["wide", "phone", "dialog"],
)
def test_axe_finds_no_serious_fault(page: Any, width: int, scheme: str, fragment: str) -> None:
    assert faults(look(page, fragment, width, scheme)) == []


def test_a_shared_address_opens_the_same_view(reader: Reader, tmp_path: Path) -> None:
    page = reader.open(keep(tmp_path / "runs", usual()), "#hide=tmln&sort=fm&open=er&theme=dark", scheme="light")
    assert labels(page) == ["joint", "er", "ewc", "naive"]
    assert page.evaluate(GROUND) == DARK
    assert page.locator("#details-title").inner_text().strip() == "er"
