"""Write a grid of text, heading first, for a terminal, Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tmln.printable import csv_cell, one_line

if TYPE_CHECKING:
    from rich.table import Table

Lines = Sequence[Sequence[str]]

LATEX_SIGNS = str.maketrans(
    {c: f"\\{c}" for c in "%&_#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {
        "Δ": r"$\Delta$",
        "†": r"$\dagger$",
        "±": r"$\pm$",
        "\N{MULTIPLICATION SIGN}": r"$\times$",
        "\N{MINUS SIGN}": "$-$",
        "\N{EN DASH}": "--",
    }
    | {"↑": r"$\uparrow$", "↓": r"$\downarrow$", "<": "$<$", ">": "$>$", "≤": r"$\leq$", "≥": r"$\geq$"}
    | {
        "λ": r"$\lambda$",
        "\N{GREEK SMALL LETTER GAMMA}": r"$\gamma$",
        "η": r"$\eta$",
        "\N{GREEK SMALL LETTER SIGMA}": r"$\sigma$",
    }
)

_MINUS = re.compile(r"(?<![\w.)\]])-(?=\.?\d)")  # of a number, not of a name
_UNLABELLED = re.compile(r"[^A-Za-z0-9:.+-]+")


class Strong(str):
    """A cell that is bold where the format has bold."""

    __slots__ = ()


def grid_rich(lines: Lines, title: str = "") -> Table:
    """Return a rich table, the first column left, the others right; text is not interpreted."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    def shown(text: str) -> Text:
        return Text(one_line(text), style="bold" if isinstance(text, Strong) else "")

    heading, *body = _check_lines(lines)
    table = Table(title=shown(title) if title else None, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    longest, width = max((len(line[0]) for line in body), default=0), folded_width(lines)
    # rich makes a column that may be folded as narrow as it likes; short names are never folded,
    # and long ones between settings
    table.add_column(shown(heading[0]), min_width=width, overflow="fold", no_wrap=longest <= width)
    for text in heading[1:]:
        table.add_column(shown(text), justify="right", no_wrap=True)
    for line in body:
        table.add_row(*map(shown, line))
    return table


NARROW, WIDE = 14, 30  # characters of names that are not folded, and of words that are


def folded_width(lines: Lines) -> int:
    """Return the width of the first column where long names are folded between their words."""
    names = [line[0] for line in lines]
    words = max((len(word) for name in names for word in name.split()), default=0)
    return min(max(map(len, names), default=0), max(NARROW, min(words, WIDE)))


def grid_width(lines: Lines) -> int:
    """Return the width that the grid needs in a terminal."""
    from rich.console import Console

    return Console(width=10_000).measure(grid_rich(lines)).maximum


def grid_markdown(lines: Lines) -> str:
    """Write Markdown, numbers on the right, strong cells bold."""

    def cell(text: str) -> str:
        plain = " ".join(text.split()).replace("|", "\\|")
        return f"**{plain}**" if isinstance(text, Strong) else plain

    heading, *body = ([cell(text) for text in line] for line in _check_lines(lines))
    rule = ["---"] + ["---:"] * (len(heading) - 1)
    return "\n".join(f"| {' | '.join(line)} |" for line in (heading, rule, *body))


def grid_latex(lines: Lines, caption: str = "", label: str = "") -> str:
    """Write a ``tabular`` with booktabs rules, in a float if it has a caption or label.

    Special characters are escaped, a hyphen before a number is a minus, missing values are dashes.
    """

    def cell(text: str) -> str:
        plain = "--" if text == "-" else _MINUS.sub("\N{MINUS SIGN}", text).translate(LATEX_SIGNS)
        return f"\\textbf{{{plain}}}" if isinstance(text, Strong) else plain

    def row(line: Sequence[str]) -> str:
        written = " & ".join(cell(text) for text in line)
        # a bracket or star that follows the line break before would be taken as its argument
        return ("{}" if written.startswith(("[", "*")) else "") + written + r" \\"

    heading, *body = _check_lines(lines)
    top = rf"\begin{{tabular}}{{l{'r' * (len(heading) - 1)}}}"
    rows = [row(line) for line in body]
    whole = [top, r"\toprule", row(heading), r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"]
    if caption or label:
        head = [rf"\caption{{{_MINUS.sub(chr(0x2212), caption).translate(LATEX_SIGNS)}}}"]
        head += [rf"\label{{{_UNLABELLED.sub('-', label)}}}"] if label else []
        whole = [r"\begin{table}[t]", r"\centering", *head, *whole, r"\end{table}"]
    return "\n".join(whole)


def grid_csv(lines: Lines) -> str:
    """Write CSV; text that a spreadsheet would run as a formula gets an apostrophe."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([csv_cell(text) for text in line] for line in _check_lines(lines))
    return out.getvalue().rstrip("\n")


def records_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Write records as CSV with full precision, one column per key; empty where missing."""
    heads = list(dict.fromkeys(key for record in records for key in record))
    return grid_csv([heads, *([_whole(record.get(head)) for head in heads] for record in records)])


WRITERS: dict[str, Callable[[Lines], str]] = {"md": grid_markdown, "latex": grid_latex, "csv": grid_csv}


def _whole(value: Any) -> str:
    return "" if value is None or (isinstance(value, float) and not math.isfinite(value)) else str(value)


def _check_lines(lines: Lines) -> Lines:
    if not lines or not lines[0]:
        raise ValueError("a table needs a heading; got none")
    for number, line in enumerate(lines[1:], 1):
        if len(line) != len(lines[0]):
            raise ValueError(f"row {number} of a table has {len(line)} cells, its heading {len(lines[0])}")
    return lines
