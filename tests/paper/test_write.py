"""Pages as text and files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tmln.analysis.text_table import Strong
from tmln.paper.scales import SCALES
from tmln.paper.study import Page, Sheet
from tmln.paper.write import format_page, print_page, write_head, write_index, write_page

LINES = [["method", "ACC % ↑", "paper"], ["TMLN", Strong("94.4 ± 1.1"), "17.63 ± 0.34"]]
PAGE = Page(
    "table9", "Table 9: nothing", [Sheet("digits", LINES)], [{"a": 1.5, "b": None}, {"a": 2, "c": "x,y"}], ["hm"]
)


def test_markdown_and_latex_have_the_table_and_the_notes() -> None:
    markdown = format_page(PAGE, "md")
    assert "| TMLN | **94.4 ± 1.1** | 17.63 ± 0.34 |" in markdown
    assert "- hm" in markdown
    latex = format_page(PAGE, "latex")
    assert r"TMLN & \textbf{94.4 $\pm$ 1.1} & 17.63 $\pm$ 0.34 \\" in latex
    assert all(word in latex for word in ("booktabs", r"\toprule", r"\bottomrule", "% hm"))


def test_csv_and_json_have_the_numbers_whole() -> None:
    rows = list(csv.DictReader(io.StringIO(format_page(PAGE, "csv"))))
    assert rows == [{"a": "1.5", "b": "", "c": ""}, {"a": "2", "b": "", "c": "x,y"}]
    assert json.loads(format_page(PAGE, "json"))["records"][0] == {"a": 1.5, "b": None}


def test_a_terminal_gets_all_of_it() -> None:
    out = io.StringIO()
    print_page(PAGE, out)
    assert "94.4±1.1  17.63±0.34" in out.getvalue()
    assert "- hm" in out.getvalue()


def test_a_narrow_terminal_loses_the_papers_deviations_and_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "26")
    out = Terminal()
    print_page(PAGE, out)
    assert "94.4±1.1" in out.getvalue()
    assert "17.63" in out.getvalue()
    assert "0.34" not in out.getvalue()
    assert "…" not in out.getvalue()


def test_the_index_has_everything(tmp_path: Path) -> None:
    write_page(PAGE, tmp_path)
    index = write_index([PAGE], tmp_path, write_head(SCALES["smoke"], Path("runs")))
    text = index.read_text()
    for word in (
        "Scale `smoke`",
        "## Table 9",
        "[md](table9.md), [tex](table9.tex), [csv](table9.csv)",
        "17.63",
        "- hm",
    ):
        assert word in text
    assert {path.name for path in tmp_path.iterdir()} == {"index.md", "table9.md", "table9.tex", "table9.csv"}
