"""The tables of docs/results.md and README are those of the published results."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.results_page import PAGES, PLACE, renewed


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_tables_are_what_the_published_results_say(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert PLACE.search(text)
    assert renewed(text) == text, "python -m benchmarks.results_page writes them anew"
