"""Text of others: shown, not obeyed, by a terminal and by a spreadsheet."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tmln.analysis.text_table import grid_csv, grid_rich
from tmln.printable import csv_cell, one_line, printable

TITLE = "\x1b]0;owned\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ± ↑ λ 漢字\n\tnext", "plain ± ↑ λ 漢字\n\tnext"),
        (f"a{TITLE}b", r"a\x1b]0;owned\x07b"),
        ("\x1b[2J\x1b[31mred", r"\x1b[2J\x1b[31mred"),
        ("over\rwritten", r"over\rwritten"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\ud800", "?"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_name_ends_no_line() -> None:
    assert one_line("a\nall is well\tb") == r"a\nall is well\tb"


@settings(deadline=None)
@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    left = printable(text)
    assert not [c for c in left if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160]
    assert printable(left) == left
    assert "\n" not in one_line(text)


@pytest.mark.parametrize(
    "text", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\n=1", " =1", "\uff1dcmd", "-cmd|' /c x'!A"]
)
def test_formulas_are_text(text: str) -> None:
    assert csv_cell(text) == f"'{text}"
    assert csv_cell(f"\r{text}") == rf"\r{text}"  # no return any more, and no formula


@pytest.mark.parametrize("text", ["-1.5", "+2", "-1e-05", "-inf", "nan", "-", "", "tmln", "ewc++", "a=b", "0", "1-2"])
def test_numbers_and_names_stay(text: str) -> None:
    assert csv_cell(text) == text


def test_where_tables_leave() -> None:
    lines = [["method", "fm"], ["=cmd|'/c calc'!A1", "-0.25"], [f"[red]{TITLE}", "0.5"]]
    read = list(csv.reader(io.StringIO(grid_csv(lines))))
    assert read[1] == ["'=cmd|'/c calc'!A1", "-0.25"]
    assert float(read[1][1]) == -0.25
    out = io.StringIO()
    Console(file=out, width=80, force_terminal=True, color_system=None).print(grid_rich(lines, f"[bold]{TITLE}"))
    assert "\x1b]" not in out.getvalue()
    assert "\x07" not in out.getvalue()
    assert r"[red]\x1b]0;owned\x07" in out.getvalue()
    assert r"[bold]\x1b]0;owned" in out.getvalue()
