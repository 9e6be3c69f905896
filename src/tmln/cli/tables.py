"""Tables on the terminal and as text, for every command that shows one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tmln.cli.options import OracleName, names_in
from tmln.cli.say import say
from tmln.printable import one_line

if TYPE_CHECKING:
    from rich.table import Table

    from tmln.results.read import Problem

NAMED = 10  # folders that are named of those passed over


class Format(str, Enum):
    table = "table"
    md = "md"
    latex = "latex"
    csv = "csv"
    json = "json"


FormatOption = Annotated[Format, typer.Option(help="How to write the table.")]


def finished_results(runs: Path, oracle: OracleName | None = None) -> list[dict[str, Any]]:
    """What a folder of runs holds, with INT wherever its reference is there; the rest is said."""
    from tmln.lab.result import has_checksum
    from tmln.results.read import gather

    found, problems = gather(runs, None if oracle is None else oracle.value)
    for text in passed_over(problems):
        say(text, err=True)
    results = list(found.values())
    if not results:
        raise ValueError(
            f"no finished run in {runs}; `tmln compare --benchmark split-digits --methods er,tmln` makes some"
        )
    doubtful = sum(not has_checksum(result) for result in results)
    if doubtful:
        say(f"{doubtful} of {len(results)} results have no checksum: an earlier version of tmln wrote them", err=True)
    return results


def passed_over(problems: Sequence[Problem]) -> list[str]:
    """What a folder of runs holds besides results: counted, and the first few named."""
    said = []
    for state in ("unfinished", "corrupt"):
        mine = [one_line(f"{p.name}: {p.reason}" if p.reason else p.name) for p in problems if p.state == state]
        if mine:
            more = [f"and {len(mine) - NAMED} more"] if len(mine) > NAMED else []
            folders = "1 folder was" if len(mine) == 1 else f"{len(mine)} folders were"
            what = "passed over" if state == "corrupt" else "left out, not finished"
            said.append(f"{folders} {what}: {'; '.join([*mine[:NAMED], *more])}")
    return said


def print_results(
    results: Sequence[dict[str, Any]], format: Format, reference: str | None, metrics: str | None = None
) -> None:
    """A table for each benchmark, a sentence in words, and what a reader must know."""
    from tmln.results import tables as render
    from tmln.results.rows import columns_of, rows_of
    from tmln.results.sentence import sentence

    wanted = None if metrics is None else names_in(metrics)
    rows = rows_of(result for result in results if not result["config"].get("merged"))
    if format in (Format.csv, Format.json):
        say((render.as_csv if format is Format.csv else render.as_json)(rows, wanted))
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
            say(note, err=format is not Format.table)


def _too_wide(lines: list[list[str]]) -> bool:
    """Names can be folded, down to fourteen letters; numbers cannot."""
    from rich.console import Console

    from tmln.results.textgrid import grid_rich

    console, longest = Console(), max(len(line[0]) for line in lines)
    return console.is_terminal and _natural_width(grid_rich(lines)) - max(0, longest - 14) > console.width


def _natural_width(table: Table) -> int:
    from rich.console import Console

    return Console(width=10_000).measure(table).maximum


def print_grid(format: Format, lines: list[list[str]], title: str = "") -> None:
    """To the terminal as a table, else as text with an empty line after it."""
    from rich.console import Console

    from tmln.results.textgrid import WRITERS, grid_rich

    if format is Format.table:
        console, table = Console(), grid_rich(lines, title)
        if not console.is_terminal:  # a file has room
            console.width = max(console.width, _natural_width(table))
        console.print(table)
    else:
        say(WRITERS[format.value](lines) + "\n")
