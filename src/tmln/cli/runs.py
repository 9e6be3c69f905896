"""The commands that run and show: tmln run, compare, show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tmln.cli.options import (
    Benchmark,
    Compile,
    Config,
    DryRun,
    Epochs,
    Every,
    LoggerName,
    Memory,
    OracleName,
    OracleOption,
    Out,
    Seeds,
    Sets,
    ShownOracle,
    Threads,
    bound_memory,
    configs_of,
    names_in,
)
from tmln.cli.say import say
from tmln.cli.tables import Format, FormatOption, finished_results, print_results

if TYPE_CHECKING:
    from tmln.lab.config import RunConfig


def run(
    benchmark: Benchmark = None,
    method: Annotated[str | None, typer.Option(help="A name from `tmln list methods`; tmln unless given.")] = None,
    seeds: Seeds = 1,
    epochs: Epochs = None,
    sets: Sets = None,
    config: Config = None,
    out: Out = Path("runs"),
    oracle: OracleOption = OracleName.prefix,
    dry_run: DryRun = False,
    checkpoint_steps: Every = None,
    threads: Threads = None,
    logger: LoggerName = "auto",
    compile: Compile = False,
    memory: Memory = None,
) -> None:
    """Train one method on a benchmark; killed at any moment, the same command goes on where it was."""
    bound_memory(memory)
    configs = configs_of(benchmark, [method], seeds, epochs, sets, config, compile)
    _work(configs, out, oracle, dry_run, checkpoint_steps, threads, logger)


def compare(
    methods: Annotated[str, typer.Option(help="Names from `tmln list methods`, with commas between.")],
    benchmark: Benchmark = None,
    seeds: Seeds = 3,
    epochs: Epochs = None,
    sets: Sets = None,
    config: Config = None,
    out: Out = Path("runs"),
    oracle: OracleOption = OracleName.prefix,
    dry_run: DryRun = False,
    checkpoint_steps: Every = None,
    threads: Threads = None,
    logger: LoggerName = "auto",
    compile: Compile = False,
    memory: Memory = None,
) -> None:
    """Train several methods on a benchmark and show them side by side."""
    bound_memory(memory)
    configs = configs_of(benchmark, names_in(methods), seeds, epochs, sets, config, compile)
    _work(configs, out, oracle, dry_run, checkpoint_steps, threads, logger)


def show(
    runs: Annotated[Path, typer.Argument(help="A folder of runs.")] = Path("runs"),
    format: FormatOption = Format.table,
    reference: Annotated[
        str | None, typer.Option(help="The row that p-values are against; the best unless given.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(help="What to show, e.g. acc,fm,bwt,fwt,rate; ACC, FM, INT and seconds unless given."),
    ] = None,
    oracle: ShownOracle = None,
) -> None:
    """The table of finished runs: mean ± sample deviation over seeds, 95% t-interval, paired p-values."""
    print_results(finished_results(runs, oracle), format, reference, metrics)


def _work(
    configs: list[RunConfig],
    out: Path,
    oracle: OracleName,
    dry_run: bool,
    every: int | None,
    threads: int | None,
    logger: str,
) -> None:
    import torch

    from tmln.lab.display import Display
    from tmln.lab.oracle import with_references
    from tmln.lab.session import Job, plan, run_jobs
    from tmln.lab.store import Store

    if threads is not None:
        torch.set_num_threads(threads)
    store, jobs = Store(out), plan(configs, oracle.value)
    open_jobs = [job for job in jobs if (run := store.find(job.config)) is None or not run.finished]
    references = [job for job in open_jobs if job.reference]
    if dry_run:
        _dry_run(configs, len(jobs), len(open_jobs), len(references))
        return
    if references:
        say(
            f"INT needs {len(references)} reference run(s) first, which all methods share "
            "(--oracle none leaves it out)",
            err=True,
        )
    results: list[dict[str, Any]] = []

    def end(job: Job, result: dict[str, Any]) -> None:
        results.append(result)
        display.end(job, result)

    with Display(len(jobs)) as display:
        run_jobs(
            store,
            jobs,
            oracle.value,
            on_begin=display.begin,
            on_step=display.step,
            on_end=end,
            checkpoint_steps=every,
            logger=logger,
        )
    print_results(with_references(results, None if oracle is OracleName.none else oracle.value), Format.table, None)
    say(f"runs: {out}")


def _dry_run(configs: list[RunConfig], runs: int, open_runs: int, references: int) -> None:
    from tmln.lab.footprint import fit, limit, shown
    from tmln.lab.run import build
    from tmln.lab.session import cost
    from tmln.lab.tally import duration

    first = configs[0]
    say(first.to_yaml().rstrip())
    planned = {}
    for config in {config.method: config for config in configs}.values():
        stream, learner = build(config)
        planned[config.method] = fit(learner, stream)
    need = cost(first)
    say(
        f"# {runs} runs, {open_runs} of them not done yet, {references} as references for INT\n"
        f"# the first: {need.steps} steps of {need.seconds_per_step:.3g} s (tried), about {duration(need.seconds)} "
        f"and {need.peak_bytes / 2**30:.1f} GiB; {need.parameters} parameters"
    )
    for name, most in planned.items():
        pieces = f", {most.pieces} samples at a time" if most.pieces else ""
        say(f"# {name}: at most {shown(most.total)} of memory{pieces} (counted), of {shown(limit())}")
