"""The tables of docs/results.md, made of results/*.json: ``python -m benchmarks.results_page`` writes them anew.

A table stands between ``<!-- recipes: Split CIFAR-10 -->``, the item of ``tmln paper`` and the table's title, and
``<!-- end -->``; with ``notes`` for a title stands what the item says about its tables. Nothing is run.
"""

from __future__ import annotations

import re
import warnings
from functools import cache
from pathlib import Path

from tmln.paper.items import ITEMS
from tmln.paper.page import Page
from tmln.paper.scales import SCALES
from tmln.paper.work import published_study
from tmln.results.textgrid import grid_markdown

ROOT = Path(__file__).resolve().parents[1]
PAGE, RESULTS = ROOT / "docs" / "results.md", ROOT / "results"
PLACE = re.compile(r"<!-- (?P<item>\w+): (?P<title>.+?) -->\n.*?<!-- end -->", re.DOTALL)


@cache
def page(item: str) -> Page:
    """What the published results say about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of steps that may be unstable: what diverges is in the notes
        study, items = published_study(SCALES["cpu"], [ITEMS[item]], RESULTS)
        return items[0].render(study)


def filled(place: re.Match[str]) -> str:
    """The place with its table in it."""
    item, title = place["item"], place["title"]
    if title == "notes":
        body = "\n".join(f"- {note}" for note in page(item).notes)
    else:
        body = next(grid_markdown(sheet.lines) for sheet in page(item).sheets if sheet.title == title)
    return f"<!-- {item}: {title} -->\n\n{body}\n\n<!-- end -->"


def renewed(text: str) -> str:
    """The page with every table as it should be."""
    return PLACE.sub(filled, text)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
