"""Tables on the terminal and as text, for every command that shows one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tmln.cli.options import OracleName, names_in

if TYPE_CHECKING:
    from rich.table import Table


class Format(str, Enum):
    table = "table"
    md = "md"
    latex = "latex"
    csv = "csv"
    json = "json"


FormatOption = Annotated[Format, typer.Option(help="How to write the table.")]


def finished_results(runs: Path, oracle: OracleName | None = None) -> list[dict[str, Any]]:
    """What a folder of runs holds, with INT wherever its reference is there; the rest is said."""
    from tmln.analysis.gather import gather

    found, problems = gather(runs, None if oracle is None else oracle.value)
    for problem in problems:
        unfinished = problem.state == "unfinished"
        typer.echo(
            f"not finished: {problem.name}" if unfinished else f"passed over {problem.name}: {problem.reason}", err=True
        )
    results = list(found.values())
    if not results:
        raise ValueError(
            f"no finished run in {runs}; `tmln compare --benchmark split-digits --methods er,tmln` makes some"
        )
    return results


def print_results(
    results: Sequence[dict[str, Any]], format: Format, reference: str | None, metrics: str | None = None
) -> None:
    """A table for each benchmark, a sentence in words, and what a reader must know."""
    from tmln.analysis import render
    from tmln.analysis.sentence import sentence
    from tmln.analysis.tables import columns_of, rows_of

    wanted = None if metrics is None else names_in(metrics)
    rows = rows_of(result for result in results if not result["config"].get("merged"))
    if format in (Format.csv, Format.json):
        typer.echo((render.as_csv if format is Format.csv else render.as_json)(rows, wanted))
        return
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        mine = [row for row in rows if row.benchmark == benchmark]
        against = render.reference_row(mine, reference)
        lines = render.grid(mine, against, wanted)
        for left_out in (("seconds",), ("seconds", "rate")):  # rates that differ are in the notes, too
            if wanted is None and format is Format.table and _too_wide(lines):
                lines = render.grid(mine, against, [name for name in columns_of(mine) if name not in left_out])
        print_grid(format, lines, benchmark)
        for note in (sentence(mine), *render.notes(mine, against)):
            typer.echo(note, err=format is not Format.table)


def _too_wide(lines: list[list[str]]) -> bool:
    """Names can be folded, down to fourteen letters; numbers cannot."""
    from rich.console import Console

    from tmln.analysis.grid import grid_rich

    console, longest = Console(), max(len(line[0]) for line in lines)
    return console.is_terminal and _natural_width(grid_rich(lines)) - max(0, longest - 14) > console.width


def _natural_width(table: Table) -> int:
    from rich.console import Console

    return Console(width=10_000).measure(table).maximum


def print_grid(format: Format, lines: list[list[str]], title: str = "") -> None:
    """To the terminal as a table, else as text with an empty line after it."""
    from rich.console import Console

    from tmln.analysis.grid import WRITERS, grid_rich

    if format is Format.table:
        console, table = Console(), grid_rich(lines, title)
        if not console.is_terminal:  # a file has room
            console.width = max(console.width, _natural_width(table))
        console.print(table)
    else:
        typer.echo(WRITERS[format.value](lines) + "\n")
