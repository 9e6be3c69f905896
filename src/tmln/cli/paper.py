"""The command that regenerates the paper: tmln paper."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tmln.cli.options import DryRun, Out, Threads
from tmln.cli.say import say
from tmln.cli.tables import Format

if TYPE_CHECKING:
    from tmln.paper.evidence import Study
    from tmln.paper.item import Item
    from tmln.paper.page import Page


class ItemName(str, Enum):
    table1 = "table1"
    table2 = "table2"
    table3 = "table3"
    table4 = "table4"
    table5 = "table5"
    table6 = "table6"
    figure2 = "figure2"
    figure3 = "figure3"
    barrier = "barrier"
    all = "all"


class ScaleName(str, Enum):
    smoke = "smoke"
    cpu = "cpu"
    full = "full"


class Executor(str, Enum):
    serial = "serial"
    local = "local"
    ray = "ray"


def paper(
    item: Annotated[ItemName, typer.Argument(help="A table or figure of the paper, or all of them.")],
    scale: Annotated[
        ScaleName,
        typer.Option(help="smoke: digits, minutes. cpu: real images, width 20, hours. full: the paper's protocol."),
    ],
    out: Out = Path("runs"),
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The folder of tables and pictures; paper-SCALE unless given.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds; the scale's own unless given.")] = None,
    format: Annotated[Format, typer.Option(help="How to print the tables; files are in every format.")] = Format.table,
    dry_run: DryRun = False,
    executor: Annotated[
        Executor, typer.Option(help="One run after another, on all cores of this machine, or on a Ray cluster.")
    ] = Executor.local,
    workers: Annotated[int | None, typer.Option(min=1, help="Runs at a time; as many as cores unless given.")] = None,
    threads: Threads = None,
) -> None:
    """Regenerate the paper's tables and figures from runs, ours beside what the paper prints."""
    import torch

    from tmln.analysis.picture import new_figure
    from tmln.lab.executors import cores
    from tmln.lab.store import Store
    from tmln.paper.evidence import Study
    from tmln.paper.forecast import forecast
    from tmln.paper.items import ITEMS
    from tmln.paper.scales import find_scale, with_seeds
    from tmln.paper.work import jobs_of, run_all
    from tmln.paper.write import head_of, write_index

    items = list(ITEMS.values()) if item is ItemName.all else [ITEMS[item.value]]
    chosen, store = with_seeds(find_scale(scale.value), seeds), Store(out)
    threads = threads or chosen.threads
    if threads is not None:
        torch.set_num_threads(threads)
    if dry_run:
        many = 1 if executor is Executor.serial else workers or cores()
        torch.set_num_threads(threads or max(1, cores() // many))  # as the workers will have
        for line in forecast(items, chosen, store, many):
            say(line)
        return
    if any(wanted.picture for wanted in items):
        new_figure(1, 1)  # is matplotlib there? asked before long work
    jobs = jobs_of(items, chosen)
    failed = run_all(store, jobs, executor.value, workers) if jobs else {}
    folder = output or Path(f"paper-{scale.value}")
    pages = _pages(items, Study(chosen, store, failed), folder, format)
    index = write_index(pages, folder, head_of(chosen, out)) if item is ItemName.all else None
    say(f"written: {index or folder / f'{item.value}.md'}", err=format is not Format.table)


def _pages(items: Sequence[Item], study: Study, folder: Path, format: Format) -> list[Page]:
    """Each is printed and written as soon as it is there."""
    import warnings

    from tmln.paper.write import as_text, print_page, write_page

    pages = []
    for item in items:
        say(f"{item.title} ...", err=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of steps that may be unstable: what diverges is in the notes
            page = item.render(study)
        write_page(page, folder)
        pages.append(page)
        if format is Format.table:
            print_page(page)
        else:
            say(as_text(page, format.value))
    return pages
