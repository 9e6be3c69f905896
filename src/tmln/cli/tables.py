"""Print tables to the terminal, or as Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tmln.cli.echo import echo_block, echo_note
from tmln.cli.options import ReferenceName, split_names

if TYPE_CHECKING:
    from tmln.analysis.rows import Row
    from tmln.analysis.significance import TestName
    from tmln.experiments.result import Result


Format = Literal["table", "md", "latex", "csv", "json"]
TestOption = Literal["t", "wilcoxon", "bootstrap"]  # the names of tmln.analysis.significance.TESTS
FormatOption = Annotated[Format, typer.Option(metavar="NAME", help="table, md, latex, csv or json.")]


def finished_results(runs: Path, oracle: ReferenceName | None = None, trials: bool = False) -> list[Result]:
    """Return a folder's finished results, with INT where its reference is; warn about the rest."""
    from tmln.analysis.notes import folder_notes
    from tmln.analysis.read import read_results

    results, problems = read_results(runs, oracle, trials)
    for text in folder_notes(results, problems):
        echo_note(text, err=True)
    if not results:
        raise ValueError(
            f"no finished run in {runs}; `tmln compare --benchmark split-digits --methods er,tmln` makes some"
        )
    return results


@dataclass(frozen=True)
class Layout:
    """A format, the columns of a single table if any, and caption and label for LaTeX."""

    format: Format = "table"
    columns: str | None = None
    caption: str | None = None
    label: str | None = None


PLAIN = Layout()


def print_results(
    results: Sequence[Result],
    layout: Layout = PLAIN,
    baseline: str | None = None,
    metrics: str | None = None,
    test: TestName = "t",
) -> None:
    """Print a table, a summary, differences and notes for each group of comparable runs."""
    from tmln.analysis.ranks import rank_lines, rank_methods, rank_notes
    from tmln.analysis.rows import group_by_table, group_rows
    from tmln.analysis.tables import find_row_by_label, row_records, row_tree

    wanted, format = None if metrics is None else split_names(metrics), layout.format
    rows = group_rows(results)
    find_row_by_label(rows, baseline)
    if print_for_programs(format, row_records(rows, wanted, test, baseline), row_tree(rows, wanted, test, baseline)):
        return
    for name, mine in group_by_table(rows).items():
        for note in _print_table(name, mine, layout, baseline, wanted, test):
            echo_note(note, err=format != "table")
    joined = rank_methods(rows)
    if joined is not None and layout.columns is None:
        print_grid(format, rank_lines(joined), "methods by benchmarks", "Methods by benchmarks.", "tab:benchmarks")
        for note in rank_notes(joined):
            echo_note(note, err=format != "table")


def _print_table(
    name: str, rows: list[Row], layout: Layout, baseline: str | None, wanted: list[str] | None, test: TestName
) -> list[str]:
    """Print the table and that of differences; return the notes."""
    from tmln.analysis.notes import CAPTION, difference_notes, table_notes
    from tmln.analysis.rows import columns_of
    from tmln.analysis.significance import assess_significance
    from tmln.analysis.summary_text import write_summary
    from tmln.analysis.tables import column_lines, difference_lines, find_row_by_label, row_lines
    from tmln.metrics import metric_of

    found = assess_significance(
        rows, "acc", test, find_row_by_label(rows, baseline) if baseline in {r.label for r in rows} else None
    )
    notes = [write_summary(rows, test), *table_notes(rows)]
    caption, label = layout.caption or f"{name}. {CAPTION}", layout.label or f"tab:{name}"
    if layout.columns is not None:
        print_grid(layout.format, column_lines(rows, found, split_names(layout.columns)), name, caption, label)
        return [*notes, *difference_notes(found)]
    columns = columns_of(rows, wanted)
    spare = (
        [] if wanted else [metric_of(metric).title for metric in reversed(columns) if not metric_of(metric).is_ranked]
    )
    if len({row.summary("acc").n for row in rows}) == 1:
        spare.append("n")  # which the summary says
    lines, dropped = _fit(row_lines(rows, columns, test), [*spare, "ACC 95%"], layout.format)
    print_grid(layout.format, lines, name, caption, label)
    if len(rows) > 1:
        difference = "" if found.reference is None else f"{name}: differences to {found.reference.label}."
        optional = ["MiB", "seconds", "p", "shared", "seeds needed", "corrected 95%"]
        lines, narrow = _fit(difference_lines(rows, found), optional, layout.format)
        print_grid(layout.format, lines, "", difference, f"{label}-differences")
        notes += difference_notes(found)
        dropped += [heading for heading in narrow if heading not in dropped]
    if dropped:
        notes.append(f"left out, as the terminal is narrow: {', '.join(dropped)}; all columns: --format md")
    return notes


def print_for_programs(format: Format, records: Sequence[Mapping[str, Any]], tree: Any) -> bool:
    """Print CSV or JSON with full precision; return whether the format is one of them."""
    from tmln.analysis.text_table import records_csv
    from tmln.experiments.files import to_json

    if format == "csv":
        echo_block(records_csv(records))
    elif format == "json":
        echo_block(to_json(tree, indent=1))
    return format in ("csv", "json")


def _fit(lines: list[list[str]], optional: Sequence[str], format: Format) -> tuple[list[list[str]], list[str]]:
    """Leave columns out until the table fits the terminal: the optional, then those on the right.

    Returns the table and the headings that were left out; the first three columns stay, if none
    is optional.
    """
    dropped: list[str] = []
    for heading in [*optional, *(one for one in reversed(lines[0][3:]) if one not in optional)]:
        if format != "table" or not _is_too_wide(lines):
            break
        if heading in lines[0]:
            place = lines[0].index(heading)
            lines = [line[:place] + line[place + 1 :] for line in lines]
            dropped.append(heading)
    return lines, dropped


def _is_too_wide(lines: list[list[str]]) -> bool:
    """Return whether a table is wider than the terminal, with names folded between their words."""
    from rich.console import Console

    from tmln.analysis.text_table import folded_width, grid_width

    console, longest = Console(), max(len(line[0]) for line in lines)
    return console.is_terminal and grid_width(lines) - max(0, longest - folded_width(lines)) > console.width


def print_grid(format: Format, lines: list[list[str]], title: str = "", caption: str = "", label: str = "") -> None:
    """Print a table to the terminal, or as text; caption and label are for LaTeX."""
    from rich.console import Console

    from tmln.analysis.text_table import WRITERS, grid_latex, grid_rich, grid_width

    if format == "table":
        console = Console()
        if not console.is_terminal:  # a file has no width
            console.width = max(console.width, grid_width(lines))
        console.print(grid_rich(lines, title))
    elif format == "latex":
        echo_block(grid_latex(lines, caption, label) + "\n")
    else:
        echo_block(WRITERS[format](lines) + "\n")
