"""The tables of docs/results.md and README are those of the published results."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.results_page import PAGES, PICTURES, PLACE, figure, renewed
from matplotlib.text import Text


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_tables_are_what_the_published_results_say(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert PLACE.search(text)
    assert renewed(text) == text, "python -m benchmarks.results_page writes them anew"


@pytest.mark.parametrize("item", PICTURES)
def test_no_text_of_a_picture_is_cut_off(item: str) -> None:
    drawn = figure(item)
    drawn.draw_without_rendering()
    whole = drawn.bbox.padded(1)
    texts = [text for text in drawn.findobj(Text) if isinstance(text, Text) and text.get_visible()]
    said = [text for text in texts if any(map(str.isalpha, text.get_text()))]  # ticks may lie beyond their axis
    assert len(said) > 10
    for text in said:
        box = text.get_window_extent()
        assert whole.contains(box.x0, box.y0), text.get_text()
        assert whole.contains(box.x1, box.y1), text.get_text()
