"""A grid of text in every format: what stands out, what is escaped, what is refused."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tmln.analysis.text_table import WRITERS, Strong, folded_width, grid_csv, grid_latex, grid_markdown, grid_rich
from tmln.printable import csv_cell

LINES = [["method", "ACC % ↑"], ["tmln", Strong("92.0 ± 2.0")], ["a_b|[red]", "-"]]


def drawn(lines: list[list[str]], title: str = "", color: bool = False) -> str:
    out = io.StringIO()
    terminal = {"force_terminal": True, "color_system": "standard"} if color else {}
    Console(file=out, width=60, **terminal).print(grid_rich(lines, title))  # type: ignore[arg-type]
    return out.getvalue()


def test_markdown_by_hand() -> None:
    assert grid_markdown(LINES) == (
        "| method | ACC % ↑ |\n| --- | ---: |\n| tmln | **92.0 ± 2.0** |\n| a_b\\|[red] | - |"
    )
    assert grid_markdown([["a"], ["two\nlines"]]).endswith("| two lines |")


def test_latex_by_hand() -> None:
    assert grid_latex(LINES).split("\n") == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"method & ACC \% $\uparrow$ \\",
        r"\midrule",
        r"tmln & \textbf{92.0 $\pm$ 2.0} \\",
        r"a\_b|[red] & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_latex_keeps_what_it_would_misread() -> None:
    body = grid_latex([["x", "y"], ["[0.1, 0.2]", r"\~^{}"], ["*", "<1 \N{MULTIPLICATION SIGN} 10"]]).split("\n")[4:6]
    assert body == [
        r"{}[0.1, 0.2] & \textbackslash{}\textasciitilde{}\textasciicircum{}\{\} \\",
        r"{}* & $<$1 $\times$ 10 \\",
    ]


def test_a_minus_is_one_in_numbers_and_not_in_names() -> None:
    lines = [["a-b", "Δ"], ["tmln-static †", "-0.9 ± 1.1"], ["x=-.5, 1e-4", "[-2.8, +2.2]"], ["split-3", "-"]]
    body = grid_latex(lines).split("\n")[2:]
    assert body[0] == r"a-b & $\Delta$ \\"
    assert body[2] == r"tmln-static $\dagger$ & $-$0.9 $\pm$ 1.1 \\"
    assert body[3] == r"x=$-$.5, 1e-4 & [$-$2.8, +2.2] \\"
    assert body[4] == r"split-3 & -- \\"


def test_a_caption_and_a_label_make_a_float() -> None:
    text = grid_latex(LINES, "50% of it, a ± b", "tab:split digits, tasks=2").split("\n")
    assert text[:4] == [
        r"\begin{table}[t]",
        r"\centering",
        r"\caption{50\% of it, a $\pm$ b}",
        r"\label{tab:split-digits-tasks-2}",
    ]
    assert text[4] == r"\begin{tabular}{lr}"
    assert text[-1] == r"\end{table}"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex to compile with")
def test_it_compiles(tmp_path: Path) -> None:
    table = grid_latex([*LINES, ["-1", "Δ † λ <1 ≥ 2"], ["[x]", "50%_#$&~^{}\\"]], "50% - of -1", "tab:x")
    whole = r"\documentclass{article}\usepackage{booktabs}\begin{document}" + table + r"\end{document}"
    (tmp_path / "table.tex").write_text(whole, encoding="utf-8")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_csv_is_plain() -> None:
    assert list(csv.reader(grid_csv([*LINES, ['say "x, y"', ""]]).splitlines())) == [
        ["method", "ACC % ↑"],
        ["tmln", "92.0 ± 2.0"],
        ["a_b|[red]", "-"],
        ['say "x, y"', ""],
    ]


def test_the_terminal_shows_names_as_they_are_and_bold_only_what_is_strong() -> None:
    text = drawn(LINES, "split [bold]digits")
    assert "split [bold]digits" in text
    assert "a_b|[red]" in text
    coloured = drawn(LINES, color=True)
    assert "\x1b[1m92.0 ± 2.0\x1b[0m" in coloured
    assert "\x1b[1mtmln" not in coloured


def test_strong_is_still_text() -> None:
    assert Strong("1.0") == "1.0"
    assert len(Strong("1.0")) == 3


@pytest.mark.parametrize("lines", [[], [[]]], ids=["nothing", "empty heading"])
def test_no_heading_is_refused(lines: list[list[str]]) -> None:
    with pytest.raises(ValueError, match="needs a heading"):
        grid_markdown(lines)


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_a_crooked_row_is_refused_and_named(name: str) -> None:
    with pytest.raises(ValueError, match="row 2 of a table has 1 cells, its heading 2"):
        WRITERS[name]([["a", "b"], ["1", "2"], ["3"]])


def test_a_heading_alone_is_a_table() -> None:
    assert grid_rich([["a", "b"]]).row_count == 0
    assert grid_csv([["a", "b"]]) == "a,b"


@settings(deadline=None)
@given(st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\n\x00")), min_size=2, max_size=2))
def test_any_text_comes_back_from_csv(cells: list[str]) -> None:
    read = list(csv.reader(io.StringIO(grid_csv([["a", "b"], cells, ["c", "d"]]))))
    assert read[1] == [csv_cell(text) for text in cells]


def test_long_names_are_folded_between_their_settings() -> None:
    lines = [["method", "n"], ["tmln step.damping=0.1 step.trajectory=10.0", "3"], ["er", "3"]]
    assert folded_width(lines) == len("step.trajectory=10.0")
    assert folded_width([["method"], ["er"], ["naive at rate"]]) == 13
    assert folded_width([["method"], ["x" * 99 + " y"]]) == 30
    assert folded_width([["method"]]) == 6
    console = Console(width=30, record=True, file=io.StringIO())
    console.print(grid_rich(lines))
    assert "step.trajectory=10.0" in console.export_text()
