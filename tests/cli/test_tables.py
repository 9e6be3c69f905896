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
    fitted, dropped = tables._fit(LINES, ["MiB", "n", "seconds"], "table")
    assert fitted == [["method", "ACC % ↑", "seconds"], ["tmln", "94.4 ± 1.1", "0.5"]]
    assert dropped == ["MiB", "n"]


@pytest.mark.usefixtures("terminal")
def test_columns_on_the_right_go_when_the_optional_ones_were_not_enough() -> None:
    """No digit is cut: 30 characters hold three columns of these."""
    fitted, dropped = tables._fit(LINES, [], "table")
    assert fitted[0] == ["method", "n", "ACC % ↑"]
    assert dropped == ["MiB", "seconds"]


@pytest.mark.usefixtures("terminal")
def test_files_have_every_column() -> None:
    assert tables._fit(LINES, ["MiB", "seconds", "n"], "md") == (LINES, [])
