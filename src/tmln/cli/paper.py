"""The command that regenerates the paper: tmln paper."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tmln.cli.echo import say
from tmln.cli.options import DryRun, Kept, Share, run_options
from tmln.cli.tables import Format
from tmln.cli.work import display_of, shared_out
from tmln.executors.config import ExecutorConfig

if TYPE_CHECKING:
    from tmln.paper.evidence import Study
    from tmln.paper.item import Item
    from tmln.paper.page import Page


class ItemName(str, Enum):
    """``tmln paper ITEM``; :data:`tmln.paper.items.ITEMS` is not imported for ``--help``."""

    table1 = "table1"
    table2 = "table2"
    table3 = "table3"
    table4 = "table4"
    table5 = "table5"
    table6 = "table6"
    figure2 = "figure2"
    figure3 = "figure3"
    barrier = "barrier"
    recipes = "recipes"
    confirm = "confirm"
    shield = "shield"
    tuning = "tuning"
    all = "all"


class ScaleName(str, Enum):
    """``--scale``: of :data:`tmln.paper.scales.SCALES`, which is not imported for ``--help``."""

    smoke = "smoke"
    cpu = "cpu"
    full = "full"


def paper(
    item: Annotated[ItemName, typer.Argument(help="A table or figure of the paper, the tuning, or all of them.")],
    scale: Annotated[
        ScaleName,
        typer.Option(help="smoke: digits. cpu: real images of 16x16, methods tuned alike. full: the paper's protocol."),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The folder of tables and pictures; paper-SCALE unless given.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds; the scale's own unless given.")] = None,
    published: Annotated[
        Path | None, typer.Option(help="Nothing is run: tables of the results that `tmln publish` wrote here.")
    ] = None,
    format: Annotated[Format, typer.Option(help="How to print the tables; files are in every format.")] = Format.table,
    kept: Kept = Kept(),
    executor: ExecutorConfig = ExecutorConfig(),
    shard: Share = None,
    dry_run: DryRun = False,
) -> None:
    """Regenerate the paper's tables and figures from runs, ours beside what the paper prints.

    With --shard only runs are done; the same command without it writes the tables, once all shares are done.

    \b
    Example:
      tmln paper table1 --scale smoke
    """
    import torch

    from tmln.executors.array_slice import read_slice
    from tmln.executors.execute import execute
    from tmln.experiments.config import run_id
    from tmln.experiments.store import Store
    from tmln.paper.evidence import Study
    from tmln.paper.items import ITEMS
    from tmln.paper.scales import find_scale, with_seeds
    from tmln.paper.work import foretold, jobs_of, published_study
    from tmln.plots.figure import new_figure

    items = list(ITEMS.values()) if item is ItemName.all else [ITEMS[item.value]]
    chosen, store = with_seeds(find_scale(scale.value), seeds), Store(kept.out)
    folder = output or Path(f"paper-{scale.value}")
    if published is not None:
        study, items = published_study(chosen, items, published)
        _finish(item, study, items, folder, format, published)
        return
    terms, share = run_options(kept, "prefix", executor), read_slice(shard)
    if dry_run:
        for line in foretold(items, chosen, store, terms, executor, share):
            say(line)
        return
    if share.whole and any(wanted.picture for wanted in items):
        new_figure(1, 1)  # is matplotlib there? asked before long work
    threads = executor.threads or chosen.threads
    if threads is not None:
        torch.set_num_threads(threads)  # for what is recorded and measured in this process
    jobs = jobs_of(items, chosen, share)
    with display_of(jobs) as display:
        failures = execute(store, jobs, terms, executor, on_event=display.note)
    if not share.whole:
        say(shared_out(len(jobs), len(jobs_of(items, chosen)), share), err=True)
        for failure in failures:
            say(f"failed: {failure.job.label}: {failure.error}", err=True)
        raise typer.Exit(1 if failures else 0)
    failed = {run_id(failure.job.config): failure.error for failure in failures}
    _finish(item, Study(chosen, store, failed), items, folder, format, kept.out)


def _finish(item: ItemName, study: Study, items: Sequence[Item], folder: Path, format: Format, runs: Path) -> None:
    """The pages, and their index where there are several."""
    from tmln.paper.write import head_of, write_index

    pages = _pages(items, study, folder, format)
    index = write_index(pages, folder, head_of(study.scale, runs)) if item is ItemName.all else None
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
