"""Write the tables and figures of docs/results.md, docs/results/, docs/anchors.md and README from results/*.json.

``python -m benchmarks.results_page`` renews them.

A table stands between ``<!-- recipes: Split CIFAR-10 -->``, the item of ``tmln paper`` and the table's title, and
``<!-- end -->``; with ``notes`` for a title stands what the item says about its tables. ``<!-- accuracy: er, tmln -->``
is for a short table of these recipes. Figures are drawn anew, too. Nothing is run.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from matplotlib.figure import Figure

from tmln.analysis.text_table import grid_markdown
from tmln.paper.items import ITEMS, published_study
from tmln.paper.scales import SCALES
from tmln.paper.study import Page, Study
from tmln.plots.figure import get_look, new_figure, save_figure
from tmln.streams import BENCHMARKS

ROOT = Path(__file__).resolve().parents[1]
DETAILS = tuple(ROOT / "docs" / "results" / f"{name}.md" for name in ("recipes", "paper_tables", "shield"))
PAGES = (ROOT / "docs" / "results.md", *DETAILS, ROOT / "docs" / "anchors.md", ROOT / "README.md")
RESULTS = ROOT / "results"
CHART, CHART_ROWS = "accuracy.svg", (
    "naive", "er", "der++", "er-ace", "icarl", "ocar", "tmln", "tmln with momentum", "tmln-kfac",
    "er+", "der+", "tmln+", "ocar+", "ocar+der", "tmln-kfac+", "tmln-kfac+der",
)  # fmt: skip
PICTURES = {
    "accuracy": CHART,
    "figure2": "landscape_cifar100.svg",
    "figure3": "front_cifar10.svg",
    "barrier": "barrier_cifar10.svg",
}
PLACE = re.compile(r"<!-- (?P<item>\w+): (?P<title>.+?) -->\n.*?<!-- end -->", re.DOTALL)


@cache
def study(scale: str, item: str) -> Study:
    """Return all published results, read once for all tables of a scale."""
    return published_study(SCALES[scale], [ITEMS[item]], RESULTS)[0]


@cache
def page(item: str) -> Page:
    """Render an item of ``tmln paper`` from the published results."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of steps that may be unstable: what diverges is in the notes
        return ITEMS[item].render(study("full", item) if item == "anchors" else study("cpu", "recipes"))


def filled(place: re.Match[str]) -> str:
    """Return the place with its table in it."""
    item, title = place["item"], place["title"]
    if item == "accuracy":
        body = grid_markdown(accuracies([method.strip() for method in title.split(",")]))
    elif title == "notes":
        body = "\n".join(f"- {note}" for note in page(item).notes)
    else:
        body = next(grid_markdown(sheet.lines) for sheet in page(item).sheets if sheet.title == title)
    return f"<!-- {item}: {title} -->\n\n{body}\n\n<!-- end -->"


def accuracies(rows: Sequence[str]) -> list[list[str]]:
    """Return ACC of these rows on every benchmark of the recipes."""
    cells = {(row["benchmark"], row["row"]): row for row in page("recipes").records if row["metric"] == "acc"}
    wheres = list(dict.fromkeys(where for where, _ in cells))
    lines = [["ACC % ↑", *(BENCHMARKS[where].title for where in wheres)]]
    for name in rows:
        found = [cells[where, name] for where in wheres]
        lines.append([name, *(f"{one['mean']:.1f} ± {one['std']:.1f}" for one in found)])
    return lines


def renewed(text: str) -> str:
    """Return the page with every table as it should be."""
    return PLACE.sub(filled, text)


def figure(item: str) -> Figure:
    """Draw a figure from the published results."""
    if item == "accuracy":
        return accuracy_chart()
    found = page(item).figure
    assert found is not None, f"{item} was not published"
    return found


def accuracy_chart() -> Figure:
    """Draw ACC of the main rows with its deviation, a panel for each benchmark."""
    cells = {(row["benchmark"], row["row"]): row for row in page("recipes").records if row["metric"] == "acc"}
    wheres = list(dict.fromkeys(where for where, _ in cells))
    chart = new_figure(8, 4.2)
    for axes, where in zip(chart.subplots(1, len(wheres), sharey=True), wheres, strict=True):
        for height, name in enumerate(reversed(CHART_ROWS)):
            one, family = cells[where, name], re.split(r"[-+ ]", name)[0]
            colour = get_look(family).colour if family in ("tmln", "ocar") else "#bbbbbb"
            axes.barh(height, one["mean"], xerr=one["std"], color=colour, height=0.7, error_kw={"linewidth": 1})
        joint = cells[where, "joint"]["mean"]
        axes.axvline(joint, color="black", linestyle="--", linewidth=1)
        axes.annotate("joint", (joint, 1.01), xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=9)
        axes.set_yticks(range(len(CHART_ROWS)), list(reversed(CHART_ROWS)), fontsize=9)
        axes.set_xlabel("average accuracy in percent")
        axes.set_title(BENCHMARKS[where].title, fontsize=11, pad=16)
        axes.spines[["top", "right"]].set_visible(False)
    return chart


if __name__ == "__main__":
    for item, name in PICTURES.items():
        save_figure(figure(item), ROOT / "docs" / "pictures" / name)
    for path in PAGES:
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
