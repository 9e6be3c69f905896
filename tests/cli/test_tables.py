"""Tables in a terminal: they fit its width, and leave out what matters least."""

from __future__ import annotations

import pytest
from rich.console import Console

from tmln.cli import tables

LINES = [["method", "n", "ACC % ↑", "seconds", "MiB"], ["tmln", "3", "94.4 ± 1.1", "0.5", "292.1"]]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console.Console", lambda **more: Console(**{"width": 30, "force_terminal": True, **more}))


@pytest.mark.usefixtures("terminal")
def test_columns_are_left_out_in_order_until_the_table_fits() -> None:
    assert tables._is_too_wide(LINES)
    fitted = tables._fit(LINES, ["MiB", "seconds", "n"], "table")
    assert fitted == [["method", "n", "ACC % ↑"], ["tmln", "3", "94.4 ± 1.1"]]


@pytest.mark.usefixtures("terminal")
def test_files_have_every_column() -> None:
    assert tables._fit(LINES, ["MiB", "seconds", "n"], "md") == LINES
