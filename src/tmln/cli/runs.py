"""The commands that run and show: tmln run, compare, show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tmln.cli.options import DryRun, How, Method, Methods, Parts, Share, ShownOracle, Spread, What
from tmln.cli.parse_configs import names_in
from tmln.cli.tables import Format, FormatOption, Layout, TestOption, finished_results, print_results
from tmln.cli.work import work
from tmln.executors.config import ExecutorConfig


def run(
    method: Method = None,
    what: What = What(),
    parts: Parts = Parts(),
    how: How = How(logger="auto"),
    executor: ExecutorConfig = ExecutorConfig(),
    spread: Spread = Spread(),
    shard: Share = None,
    dry_run: DryRun = False,
) -> None:
    """Train one method on a benchmark; killed at any moment, the same command goes on where it was.

    \b
    Example:
      tmln run --benchmark split-digits --method tmln --seeds 5 --set step.damping=0.2
    """
    configs, devices = spread.of(what.configs([method], parts=parts)), spread.asked(executor)
    for config in configs:
        devices.check_method(config.recipe())
    if dry_run or not devices.asked:
        work(configs, how, executor, dry_run, accumulate=spread.accumulate, shard=shard)
        return
    from tmln.executors.distributed_run import together

    with together(devices) as pool:
        if pool is not None:  # this process leads
            work(configs, how, executor, pool=pool, accumulate=spread.accumulate, shard=shard)


def compare(
    methods: Methods,
    what: What = What(seeds=3),
    parts: Parts = Parts(),
    how: How = How(logger="auto"),
    executor: ExecutorConfig = ExecutorConfig(),
    shard: Share = None,
    dry_run: DryRun = False,
) -> None:
    """Train several methods on a benchmark and show them side by side.

    \b
    Example:
      tmln compare --benchmark split-digits --methods naive,er,tmln --seeds 5
    """
    work(what.configs(names_in(methods), parts=parts), how, executor, dry_run, shard=shard)


def show(
    runs: Annotated[Path, typer.Argument(help="A folder of runs, or a published file.")] = Path("runs"),
    format: FormatOption = Format.table,
    reference: Annotated[
        str | None, typer.Option(help="The row that the others are held against; the best unless given.")
    ] = None,
    test: Annotated[TestOption, typer.Option(help="How differences are tested; corrected by Holm in any case.")] = (
        TestOption.t
    ),
    metrics: Annotated[
        str | None,
        typer.Option(help="What to show, e.g. acc,fm,bwt,fwt,rate; ACC, FM, INT and seconds unless given."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="One table: any metric, n, interval, shared, delta, delta_interval, p, holm, seeds_needed, memory."
        ),
    ] = None,
    caption: Annotated[str | None, typer.Option(help="Of a LaTeX table; what it shows unless given.")] = None,
    label: Annotated[str | None, typer.Option(help="Of a LaTeX table; tab:BENCHMARK unless given.")] = None,
    trials: Annotated[bool, typer.Option("--trials", help="Show the trials of searches, too.")] = False,
    oracle: ShownOracle = None,
) -> None:
    """The table of finished runs, a sentence, and how far each row is from the best: corrected for how many there are.

    \b
    Example:
      tmln show runs --format latex --columns acc,fm,delta,holm
    """
    layout = Layout(format, columns, caption, label)
    print_results(finished_results(runs, oracle, trials), layout, reference, metrics, test.value)
