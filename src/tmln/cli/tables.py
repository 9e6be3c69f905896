"""Tables on the terminal and as text, for every command that shows one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tmln.cli.echo import say
from tmln.cli.options import OracleName
from tmln.cli.parse_configs import names_in

if TYPE_CHECKING:
    from tmln.analysis.paired import TestName
    from tmln.analysis.rows import Row
    from tmln.experiments.result import Result


class Format(str, Enum):
    """``--format``: for a terminal, a document, a paper, a spreadsheet, a program."""

    table = "table"
    md = "md"
    latex = "latex"
    csv = "csv"
    json = "json"


class TestOption(str, Enum):
    """``--test``: the names of :data:`tmln.analysis.paired.TESTS`."""

    t = "t"
    wilcoxon = "wilcoxon"
    bootstrap = "bootstrap"


FormatOption = Annotated[Format, typer.Option(help="How to write the table.")]


def finished_results(runs: Path, oracle: OracleName | None = None, trials: bool = False) -> list[Result]:
    """What a folder of runs holds, with INT wherever its reference is there; the rest is said."""
    from tmln.analysis.notes import folder_notes
    from tmln.analysis.read import read_results

    results, problems = read_results(runs, None if oracle is None else oracle.value, trials)
    for text in folder_notes(results, problems):
        say(text, err=True)
    if not results:
        raise ValueError(
            f"no finished run in {runs}; `tmln compare --benchmark split-digits --methods er,tmln` makes some"
        )
    return results


@dataclass(frozen=True)
class Layout:
    """How tables are to be made: ``columns`` are of one table, which then stands alone; the rest are LaTeX's."""

    format: Format = Format.table
    columns: str | None = None
    caption: str | None = None
    label: str | None = None


PLAIN = Layout()


def print_results(
    results: Sequence[Result],
    layout: Layout = PLAIN,
    reference: str | None = None,
    metrics: str | None = None,
    test: TestName = "t",
) -> None:
    """For each group of comparable runs a table, a sentence, the differences, and what a reader must know."""
    from tmln.analysis.across_benchmarks import across
    from tmln.analysis.across_table import across_lines, across_notes
    from tmln.analysis.differences import row_records, row_tree
    from tmln.analysis.rows import comparable, rows_of
    from tmln.analysis.tables import named_row

    wanted, format = None if metrics is None else names_in(metrics), layout.format
    rows = rows_of(results)
    named_row(rows, reference)
    if print_whole(format, row_records(rows, wanted, test, reference), row_tree(rows, wanted, test, reference)):
        return
    for name, mine in comparable(rows).items():
        for note in _print_table(name, mine, layout, reference, wanted, test):
            say(note, err=format is not Format.table)
    joined = across(rows)
    if joined is not None and layout.columns is None:
        print_grid(format, across_lines(joined), "methods by benchmarks", "Methods by benchmarks.", "tab:benchmarks")
        for note in across_notes(joined):
            say(note, err=format is not Format.table)


def _print_table(
    name: str, rows: list[Row], layout: Layout, reference: str | None, wanted: list[str] | None, test: TestName
) -> list[str]:
    """The table, and that of differences; what is to be said of them."""
    from tmln.analysis.differences import column_lines, difference_lines
    from tmln.analysis.notes import CAPTION, difference_notes, table_notes
    from tmln.analysis.rows import columns_of
    from tmln.analysis.significance import assess_significance
    from tmln.analysis.summary_text import write_summary
    from tmln.analysis.tables import named_row, row_lines
    from tmln.metrics import metric_of

    found = assess_significance(
        rows, "acc", test, named_row(rows, reference) if reference in {r.label for r in rows} else None
    )
    notes = [write_summary(rows, test), *table_notes(rows)]
    caption, label = layout.caption or f"{name}. {CAPTION}", layout.label or f"tab:{name}"
    if layout.columns is not None:
        print_grid(layout.format, column_lines(rows, found, names_in(layout.columns)), name, caption, label)
        return [*notes, *difference_notes(found)]
    columns = list(columns_of(rows, wanted))
    spare = [metric for metric in columns if wanted is None and not metric_of(metric).contest]
    lines = row_lines(rows, columns, test)
    while spare and layout.format is Format.table and _too_wide(lines):  # rates that differ are in the notes, too
        columns.remove(spare.pop())
        lines = row_lines(rows, columns, test)
    print_grid(layout.format, lines, name, caption, label)
    if len(rows) > 1:
        difference = "" if found.reference is None else f"{name}: differences to {found.reference.label}."
        print_grid(layout.format, difference_lines(rows, found), "", difference, f"{label}-differences")
        notes += difference_notes(found)
    return notes


def print_whole(format: Format, records: Sequence[Mapping[str, Any]], tree: Any) -> bool:
    """For programs, every number whole, not as shown; whether that was asked for."""
    from tmln.analysis.text_table import records_csv
    from tmln.experiments.files import to_json

    if format is Format.csv:
        say(records_csv(records))
    elif format is Format.json:
        say(to_json(tree, indent=1))
    return format in (Format.csv, Format.json)


def _too_wide(lines: list[list[str]]) -> bool:
    """Names can be folded, down to fourteen letters; numbers cannot."""
    from rich.console import Console

    from tmln.analysis.text_table import grid_width

    console, longest = Console(), max(len(line[0]) for line in lines)
    return console.is_terminal and grid_width(lines) - max(0, longest - 14) > console.width


def print_grid(format: Format, lines: list[list[str]], title: str = "", caption: str = "", label: str = "") -> None:
    """To the terminal as a table, else as text with an empty line after it; caption and label are LaTeX's."""
    from rich.console import Console

    from tmln.analysis.text_table import WRITERS, grid_latex, grid_rich, grid_width

    if format is Format.table:
        console = Console()
        if not console.is_terminal:  # a file has room
            console.width = max(console.width, grid_width(lines))
        console.print(grid_rich(lines, title))
    elif format is Format.latex:
        say(grid_latex(lines, caption, label) + "\n")
    else:
        say(WRITERS[format.value](lines) + "\n")
