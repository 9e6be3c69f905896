"""docs/benchmarks.md says what the table says; a failure shows the lines as they should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tmln.data import DATA
from tmln.streams.benchmarks import BENCHMARKS, group_options

PAGE = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8").splitlines()


def line(*columns: object) -> str:
    return f"| {' | '.join(str(column) for column in columns)} |".replace("|  |", "| |").replace("|  |", "| |")


def expected() -> list[str]:
    lines = []
    for name, row in BENCHMARKS.items():
        data = f"`{row.data}`" if row.data else "yours"
        run = (f"`{row.model}`", row.epochs, row.batch_size, row.lr)
        lines.append(line(f"`{name}`", row.summary, data, row.tasks or "", *run))
    for name, data_set in DATA.items():
        size = f"{sum(file.size for file in data_set.files) / 1e6:.0f} MB" if data_set.files else "none"
        lines.append(line(f"`{name}`", data_set.title, data_set.summary, size))
    for users, options in group_options().items():
        lines.append(f"### Of {users}")
        lines += [line(f"`{one.name}`", one.form, one.default, one.about) for one in options]
    return lines


@pytest.mark.parametrize("said", expected())
def test_the_page_is_the_table(said: str) -> None:
    assert said in PAGE


def test_the_page_says_no_more() -> None:
    rows = [text for text in PAGE if text.startswith(("| `", "### Of "))]
    assert sorted(rows) == sorted(expected())
