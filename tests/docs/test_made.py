"""The pages that are made: of what the parts declare, and of results that are still true."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.results_page import accuracies
from docs.extensions.api_pages import SOURCE, modules, names
from docs.extensions.docstrings import html
from docs.extensions.house_pages import moved
from docs.extensions.paper_pages import pages as paper_pages
from docs.extensions.part_pages import method_page, part_page, settings, slug, with_it
from docs.extensions.rows import PAGE, RESULTS, rows, still_so, table, tuned_table
from latex2mathml.converter import convert

from tmln.paper.items import ITEMS
from tmln.paper.published import TABLE1, TABLE2, TABLE3, TABLE4, TABLE5, TABLE6
from tmln.recipes import FAMILIES, RECIPES
from tmln.results.read import read_results

PARTS = [(family, name) for family in FAMILIES for name in FAMILIES[family]]


@pytest.mark.parametrize(("family", "name"), PARTS)
def test_a_part_has_a_guide_of_its_own(family: str, name: str) -> None:
    """A guide that is inherited would speak of another part."""
    guide = vars(FAMILIES[family][name]).get("guide")
    assert guide is not None, f"{family} {name} says nothing of itself: give its class a `guide` (tmln.parts.Guide)"
    assert "<math" in convert(guide.equation)
    for text in (guide.cost, guide.use, guide.avoid):
        assert text[0].isupper()
        assert text.endswith(".")
    page = part_page(family, name)
    assert all(said in page for said in (guide.equation, guide.origin, guide.cost, guide.use[1:], guide.avoid[1:]))


def test_settings_are_those_that_the_part_declares() -> None:
    lines = settings("step", FAMILIES["step"]["tmln"]).splitlines()
    assert "| `step.damping` | a number > 0 | 0.1 | 0.001 to 10, log | lambda |" in lines
    assert len(lines) == 2 + len(FAMILIES["step"]["tmln"].Settings.model_fields)


def test_a_method_has_its_parts_and_its_row() -> None:
    page = method_page("tmln+")
    assert "[`average`](../parts/weights-average.md)" in page
    assert "`replay.balance=1.0`" in page
    assert "| split-digits | 3 |" in page
    assert f"| Split CIFAR-100 | 5 | {accuracies(['tmln+'])[1][1]} |" in page  # as in README


def test_a_part_has_the_rows_of_its_methods() -> None:
    page = part_page("weights", "average")
    assert "| method | split-digits | Split CIFAR-100, tuned | Split CIFAR-10, tuned | pacs, tuned |" in page
    (line,) = [line for line in page.splitlines() if line.startswith("| [`tmln+`](../methods/tmln-plus.md) |")]
    assert line.endswith(f"| {' | '.join(accuracies(['tmln+'])[1][1:])} | - |")


def test_a_row_is_ours_not_the_papers() -> None:
    """On PACS the table has the paper's CORe50 beside each number."""
    (line,) = [line for line in tuned_table("upgd").splitlines() if line.startswith("| pacs |")]
    _, row = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| UPGD | 5 |")]
    assert line.split(" | ")[2] == row.replace("*", "").split(" | ")[2]


def test_a_part_without_a_method_says_so() -> None:
    assert with_it([]) == "None by name; put it in any."


def test_the_paper_is_shown_whole() -> None:
    """Every number that it prints, in the words in which the tables of `tmln paper` have it."""
    (page,) = paper_pages().values()
    printed = [cells for rows in (*TABLE1.values(), TABLE2) for cells in rows.values()]
    printed += [cells for grid in TABLE6.values() for cells in grid.values()]
    assert all(str(number) in page for cells in printed for number in cells.values())
    assert all(f"{loss:.4f}" in page for tasks in TABLE5.values() for losses in tasks for loss in losses)
    assert all(f"{cost.relative_time:.2f} |" in page for cost in TABLE4.values())
    assert all(f"`{ours}={value:g}`" in page for chosen in TABLE3.values() for ours, (_, value) in chosen.items())
    assert all(f"| {name} |" in page for name in ITEMS)


def test_addresses_are_told_apart() -> None:
    assert len({slug(name) for name in RECIPES}) == len(RECIPES)
    assert len({f"{family}-{slug(name)}" for family, name in PARTS}) == len(PARTS)


def test_what_a_method_no_longer_is_is_not_shown() -> None:
    result = read_results(RESULTS / "digits.json")[0][0]
    assert still_so(result)
    config = {**result.config, "settings": {**result.config["settings"], "step.batch": 1}}
    assert not still_so(replace(result, config=config))
    assert not still_so(replace(result, method="gone"))


def test_a_method_without_runs_has_no_table() -> None:
    assert table("er", []) == ""
    assert table("er", rows()).count("\n") == 2


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("a*b |c| <d>", "<p>a*b |c| &lt;d&gt;</p>"),
        ("first:\n- one\n  more\n- two", "<p>first:</p><ul><li>one more</li><li>two</li></ul>"),
        ("Args:\n    x: a\n        b\n    y: c", "<p>Args:</p><ul><li>x: a b</li><li>y: c</li></ul>"),
        (">>> 1 < 2\nTrue", '<pre tabindex="0">&gt;&gt;&gt; 1 &lt; 2\nTrue</pre>'),
        ("so:\n\n    x = 1", '<p>so:</p>\n<pre tabindex="0">x = 1</pre>'),
        ("see :func:`f` and :func:`g`", '<p>see <a href="#f"><code>f</code></a> and <code>g</code></p>'),
    ],
)
def test_docstrings_are_shown_as_they_are_written(text: str, made: str) -> None:
    assert html(text, {"f": "#f"}.get) == made


def test_every_module_is_in_the_api() -> None:
    assert len(list(modules())) == len(list(SOURCE.rglob("*.py"))) - 1  # __main__
    (optim,) = [module for module in modules() if module.name == "tmln.optim.tmln"]
    assert {"tmln.optim.tmln.TMLN", "tmln.optim.tmln.TMLN.consolidate"} <= {*names(optim)}


def test_links_of_the_root_follow() -> None:
    assert moved("[a](docs/lab.md#x) [b](CONTRIBUTING.md)") == "[a](../../lab.md#x) [b](contributing.md)"
