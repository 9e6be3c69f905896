"""The commands that run and show: tmln run, compare, show."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tmln.lab.config import RunConfig


class OracleName(str, Enum):
    prefix = "prefix"
    final = "final"
    none = "none"


class Format(str, Enum):
    table = "table"
    md = "md"
    latex = "latex"
    csv = "csv"
    json = "json"


Benchmark = Annotated[str | None, typer.Option(help="A name from `tmln list benchmarks`, or folder:PATH.")]
Seeds = Annotated[
    int, typer.Option(min=1, help="How many seeds: 0, 1, ..., or from the one given by --set seed or --config on.")
]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting, e.g. step.damping=0.2.")
]
Out = Annotated[Path, typer.Option(help="The folder of runs.")]
Config = Annotated[Path | None, typer.Option(exists=True, help="A YAML file with the same settings.")]
OracleOption = Annotated[
    OracleName,
    typer.Option(help="The reference of INT: joint on tasks 1..k for every k, one joint model (a shortcut), or none."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, and what it would cost.")]
Every = Annotated[int | None, typer.Option(min=1, help="Steps between checkpoints (besides one every five minutes).")]
LoggerName = Annotated[str, typer.Option(help="tensorboard, wandb, none; auto is tensorboard if installed.")]
Compile = Annotated[bool, typer.Option("--compile", help="torch.compile the training pass: a slow start, then faster.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads for torch; all cores unless given.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Epochs a task; the benchmark's own unless given.")]


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
) -> None:
    """Train one method on a benchmark; killed at any moment, the same command goes on where it was."""
    configs = _configs(benchmark, [method], seeds, epochs, sets, config, compile)
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
) -> None:
    """Train several methods on a benchmark and show them side by side."""
    names: list[str | None] = [name.strip() for name in methods.split(",") if name.strip()]
    configs = _configs(benchmark, names, seeds, epochs, sets, config, compile)
    _work(configs, out, oracle, dry_run, checkpoint_steps, threads, logger)


def show(
    runs: Annotated[Path, typer.Argument(help="A folder of runs.")] = Path("runs"),
    format: Annotated[Format, typer.Option(help="How to write the table.")] = Format.table,
    reference: Annotated[
        str | None, typer.Option(help="The row that p-values are against; the best unless given.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="What to show, e.g. acc,fm,bwt,fwt; ACC, FM, INT and seconds unless given.")
    ] = None,
) -> None:
    """The table of finished runs: mean ± sample deviation over seeds, 95% t-interval, paired p-values."""
    print_results(finished_results(runs), format, reference, metrics)


def finished_results(runs: Path) -> list[dict[str, Any]]:
    """What a folder of runs holds, with INT wherever its reference is there; the rest is said."""
    from tmln.lab.oracle import with_references
    from tmln.lab.store import Store

    if not runs.is_dir():
        raise ValueError(f"there is no folder {runs}; `tmln compare` makes one")
    entries = list(Store(runs).runs())
    results = with_references(entry.result for entry in entries if entry.result is not None)
    for entry in entries:
        if entry.state == "corrupt":
            typer.echo(f"passed over {entry.name}: {entry.reason}", err=True)
        elif entry.state == "unfinished":
            typer.echo(f"not finished: {entry.name}", err=True)
    if not results:
        raise ValueError(
            f"no finished run in {runs}; `tmln compare --benchmark split-digits --methods er,tmln` makes some"
        )
    return results


def print_results(
    results: Sequence[dict[str, Any]], format: Format, reference: str | None, metrics: str | None = None
) -> None:
    from rich.console import Console

    from tmln.analysis import render
    from tmln.analysis.sentence import sentence
    from tmln.analysis.tables import rows_of

    wanted = None if metrics is None else [name.strip() for name in metrics.split(",") if name.strip()]
    rows = rows_of(result for result in results if not result["config"].get("merged"))
    if format in (Format.csv, Format.json):
        typer.echo((render.as_csv if format is Format.csv else render.as_json)(rows, wanted))
        return
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        mine = [row for row in rows if row.benchmark == benchmark]
        against = render.reference_row(mine, reference)
        if format is Format.table:
            Console().print(render.as_rich(mine, against, wanted))
        else:
            typer.echo((render.as_markdown if format is Format.md else render.as_latex)(mine, against, wanted))
        for note in (sentence(mine), *render.notes(mine, against)):
            typer.echo(note, err=format is not Format.table)


def _configs(
    benchmark: str | None,
    methods: Sequence[str | None],
    seeds: int,
    epochs: int | None,
    sets: list[str] | None,
    file: Path | None,
    compile: bool,
) -> list[RunConfig]:
    from tmln.lab.config import RunConfig
    from tmln.recipes import find_recipe

    changes: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    if compile:
        changes["compile"] = True
    for text in sets or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set takes KEY=VALUE, e.g. step.damping=0.2; got {text!r}")
        changes[key.strip()] = value.strip()
    if file is None and benchmark is None:
        raise ValueError("which benchmark? --benchmark split-digits, say (tmln list benchmarks)")
    configs = []
    for method in methods:
        if method is not None:
            find_recipe(method)
        base = RunConfig.from_yaml(file.read_text(encoding="utf-8")) if file else RunConfig(benchmark=str(benchmark))
        given = {k: v for k, v in (("benchmark", benchmark), ("method", method)) if v is not None}
        base = base.with_settings({**given, **changes})
        configs += [base.with_setting("seed", base.seed + k) for k in range(seeds)]
    return configs


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
    from tmln.lab.run import Interrupted
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
        typer.echo(
            f"INT needs {len(references)} joint reference run(s) first, which all methods share "
            "(--oracle none leaves it out)",
            err=True,
        )
    results: list[dict[str, Any]] = []

    def end(job: Job, result: dict[str, Any]) -> None:
        results.append(result)
        display.end(job, result)

    try:
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
    except Interrupted as stopped:
        typer.echo(f"tmln: {stopped}", err=True)
        raise typer.Exit(130) from None
    print_results(results, Format.table, None)
    typer.echo(f"runs: {out}")


def _dry_run(configs: list[RunConfig], runs: int, open_runs: int, references: int) -> None:
    from tmln.lab.session import cost

    first = configs[0]
    typer.echo(first.to_yaml().rstrip())
    need = cost(first)
    typer.echo(
        f"# {runs} runs, {open_runs} of them not done yet, {references} as references for INT\n"
        f"# the first: {need.steps} steps of {need.seconds_per_step:.3g} s (tried), about {_duration(need.seconds)} "
        f"and {need.peak_bytes / 2**30:.1f} GiB; {need.parameters} parameters"
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
