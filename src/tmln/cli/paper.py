"""The command that regenerates the paper's tables and figures: tmln paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tmln.cli.echo import echo, echo_block
from tmln.cli.execution import describe_share, display_of, print_failures
from tmln.cli.options import DryRun, RecordingOptions, Shard, run_options
from tmln.cli.tables import Format
from tmln.executors.config import ExecutorConfig

if TYPE_CHECKING:
    from tmln.paper.study import Item, Page, Study


# The names of tmln.paper.items.ITEMS, which ``--help`` does not import.
ItemName = Literal[
    "table1",
    "table2",
    "table3",
    "table4",
    "table5",
    "table6",
    "figure2",
    "figure3",
    "barrier",
    "recipes",
    "confirm",
    "shield",
    "tuning",
    "anchors",
    "all",
]


# The names of tmln.paper.scales.SCALES.
ScaleName = Literal["smoke", "cpu", "full"]


def paper(
    item: Annotated[
        ItemName,
        typer.Argument(
            metavar="ITEM",
            help="table1 to table6, figure2, figure3, barrier, recipes, confirm, shield, tuning, anchors, or all.",
        ),
    ],
    scale: Annotated[
        ScaleName,
        typer.Option(
            metavar="NAME", help="smoke (digits), cpu (16x16 images, methods tuned alike), full (the protocol)."
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Tables and figures; paper-SCALE by default.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of seeds; the scale's own by default.")
    ] = None,
    published: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Run nothing: use published results of this folder.")
    ] = None,
    format: Annotated[
        Format, typer.Option(metavar="NAME", help="Printed tables: table, md, latex, csv, json; files have all.")
    ] = "table",
    recording: RecordingOptions = RecordingOptions(),
    executor: ExecutorConfig = ExecutorConfig(),
    shard: Shard = None,
    dry_run: DryRun = False,
) -> None:
    """Regenerate the paper's tables and figures, beside its numbers.

    With --shard it only trains; without it, once all shares are done, it writes the tables.

    \b
    Example:
      tmln paper table1 --scale smoke
    """
    import torch

    from tmln.executors.execute import execute
    from tmln.executors.plan import read_slice
    from tmln.experiments.config import run_id
    from tmln.experiments.store import Store
    from tmln.paper.items import ITEMS, estimate_study, plan_jobs, published_study
    from tmln.paper.scales import find_scale, with_seeds
    from tmln.paper.study import Study
    from tmln.plots.figure import new_figure

    items = list(ITEMS.values()) if item == "all" else [ITEMS[item]]
    chosen, store = with_seeds(find_scale(scale), seeds), Store(recording.runs)
    if item == "tuning" and chosen.can_be_tuned:
        chosen = replace(chosen, tuned=True)
    folder = output or Path(f"paper-{scale}")
    if published is not None:
        study, items = published_study(chosen, items, published)
        _finish(item, study, items, folder, format, published)
        return
    terms, share = run_options(recording, "prefix", executor), read_slice(shard)
    if dry_run:
        for line in estimate_study(items, chosen, store, terms, executor, share):
            echo_block(line)
        return
    if share.whole and any(wanted.picture for wanted in items):
        new_figure(1, 1)  # fails without matplotlib, before long work
    threads = executor.threads or chosen.threads
    if threads is not None:
        torch.set_num_threads(threads)  # for what is recorded and measured in this process
    jobs = plan_jobs(items, chosen, share)
    with display_of(jobs) as display:
        failures = execute(store, jobs, terms, executor, on_event=display.update)
    if not share.whole:
        echo(describe_share(len(jobs), len(plan_jobs(items, chosen)), share), err=True)
        print_failures(failures)
        raise typer.Exit(1 if failures else 0)
    failed = {run_id(failure.job.config): failure.error for failure in failures}
    _finish(item, Study(chosen, store, failed), items, folder, format, recording.runs)


def _finish(item: ItemName, study: Study, items: Sequence[Item], folder: Path, format: Format, runs: Path) -> None:
    """Write the pages, and an index where there are several."""
    from tmln.paper.write import write_head, write_index

    pages = _pages(items, study, folder, format)
    index = write_index(pages, folder, write_head(study.scale, runs)) if item == "all" else None
    echo(f"written: {index or folder / f'{item}.md'}", err=format != "table")


def _pages(items: Sequence[Item], study: Study, folder: Path, format: Format) -> list[Page]:
    """Print and write each page as soon as it is ready."""
    import warnings

    from tmln.paper.write import format_page, print_page, write_page

    pages = []
    for item in items:
        echo(f"{item.title} ...", err=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # divergence is in the notes
            page = item.render(study)
        write_page(page, folder)
        pages.append(page)
        if format == "table":
            print_page(page)
        else:
            echo_block(format_page(page, format))
    return pages
