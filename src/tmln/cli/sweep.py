"""The command that runs many configurations: tmln sweep."""

from __future__ import annotations

from collections.abc import Sequence
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
    Sets,
    bound_memory,
    configs_of,
    names_in,
)
from tmln.cli.say import say
from tmln.cli.tables import Format, print_results

if TYPE_CHECKING:
    from tmln.lab.config import RunConfig
    from tmln.lab.executors import Failure
    from tmln.lab.livetable import LiveTable
    from tmln.lab.session import Job
    from tmln.lab.store import Store

Seeds = Annotated[int, typer.Option(min=1, help="How many seeds of each: 0, 1, ..., or from --set seed on.")]
Spaces = Annotated[
    list[str] | None,
    typer.Option(
        "--space",
        metavar="KEY=LOW..HIGH",
        help="Where to look: LOW..HIGH (log scale from a factor of ten on; :log or :linear after it say which), "
        "V1,V2,..., or KEY alone for what the part declares. Without any, all numbers that the parts declare.",
    ),
]
Executor = Annotated[str, typer.Option(help="local: processes of this machine; ray: tasks of a Ray cluster.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Runs at one time; a core each, or all that Ray has, unless given.")
]
Address = Annotated[
    str | None, typer.Option(help="Of the Ray cluster: HOST:PORT, ray://HOST:PORT or auto; a local one unless given.")
]
Cpus = Annotated[int | None, typer.Option(min=1, help="Threads of each run; the cores are shared out unless given.")]
Gpus = Annotated[float, typer.Option(min=0, help="GPUs that each run asks of Ray, e.g. 0.5.")]
Retries = Annotated[int, typer.Option(min=0, help="How often a run whose worker is lost goes on from its checkpoint.")]


def sweep(
    benchmark: Benchmark = None,
    method: Annotated[str | None, typer.Option(help="A name from `tmln list methods`; tmln unless given.")] = None,
    methods: Annotated[str | None, typer.Option(help="Several methods, with commas between.")] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", metavar="KEY=V1,V2", help="Any field and its values; several make all combinations."),
    ] = None,
    random: Annotated[int, typer.Option(min=0, help="How many points to draw from --space, for each of the grid.")] = 0,
    space: Spaces = None,
    seeds: Seeds = 1,
    epochs: Epochs = None,
    sets: Sets = None,
    config: Config = None,
    out: Out = Path("runs"),
    oracle: OracleOption = OracleName.prefix,
    executor: Executor = "local",
    workers: Workers = None,
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = 0.0,
    retries: Retries = 2,
    dry_run: DryRun = False,
    checkpoint_steps: Every = None,
    logger: LoggerName = "none",
    compile: Compile = False,
    memory: Memory = None,
) -> None:
    """Run a grid, or random draws, times seeds, times methods; stopped at any moment, the same command goes on."""
    from tmln.lab.executors import execute
    from tmln.lab.session import plan
    from tmln.lab.store import Store
    from tmln.lab.sweep import read_grid, read_spaces
    from tmln.lab.sweep import sweep as combine

    if not (grid or random or methods):
        raise ValueError("nothing to sweep: give --grid KEY=V1,V2, --random N, or --methods A,B")
    if space and not random:
        raise ValueError("--space says where to draw from; --random N says how often")
    bound_memory(memory)
    bases = configs_of(benchmark, _names(method, methods), 1, epochs, sets, config, compile)
    found = combine(bases, read_grid(grid or []), draws=random, space=read_spaces(space or []), seeds=seeds)
    for note in found.notes:
        say(note, err=True)
    store, jobs = Store(out), plan(found.configs, oracle.value)
    if dry_run:
        _dry_run(store, jobs, workers, cpus)
        return
    with table_of(jobs) as table:
        failures = execute(
            store,
            jobs,
            oracle.value,
            executor=executor,
            workers=workers,
            address=address,
            cpus=cpus,
            gpus=gpus,
            retries=retries,
            on_event=table.note,
            checkpoint_steps=checkpoint_steps,
            logger=logger,
        )
    _conclude(store, jobs, failures, oracle)


def _names(method: str | None, methods: str | None) -> Sequence[str | None]:
    if method is not None and methods is not None:
        raise ValueError("give --method or --methods, not both")
    if methods is None:
        return [method]
    names = names_in(methods)
    if not names:
        raise ValueError("--methods is empty; write --methods er,tmln (tmln list methods)")
    return names


def table_of(jobs: Sequence[Job], brief: bool = False) -> LiveTable:
    from tmln.analysis.tables import label_methods
    from tmln.lab.config import run_id
    from tmln.lab.livetable import LiveTable

    plain = []
    for job in jobs:
        config = job.config.resolved()
        plain.append({"benchmark": config["benchmark"], "method": config["method"], "config": config})
    labels = {}
    for job, label in zip(jobs, label_methods(plain), strict=True):
        why = " (reference for INT)" if job.reference else ""
        labels[run_id(job.config)] = (job, f"{label}, seed {job.config.seed}{why}")
    return LiveTable(labels, brief=brief)


def result_of(store: Store, config: RunConfig) -> dict[str, Any] | None:
    run = store.find(config)
    return None if run is None else run.result


def _conclude(store: Store, jobs: Sequence[Job], failures: Sequence[Failure], oracle: OracleName) -> None:
    """The table of all that is finished, then what is not, and why."""
    from tmln.lab.config import run_id
    from tmln.lab.oracle import with_references

    failed = {run_id(failure.job.config) for failure in failures}
    found = [result_of(store, job.config) for job in jobs if run_id(job.config) not in failed]
    wanted = None if oracle is OracleName.none else oracle.value
    results = with_references((result for result in found if result is not None), wanted)
    if results:
        print_results(results, Format.table, None)
    for package in ("tmln", "torch"):
        versions = sorted({str(result.get("versions", {}).get(package, "unknown")) for result in results})
        if len(versions) > 1:
            say(f"runs of several versions of {package}: {', '.join(versions)}")
    say(f"runs: {store.root}")
    for failure in failures:
        say(f"failed: {failure.job.label}: {failure.error}", err=True)
    if failures:
        say(f"{len(failures)} of {len(jobs)} runs failed; the same command tries them again", err=True)
        raise typer.Exit(1)


def _dry_run(store: Store, jobs: Sequence[Job], workers: int | None, cpus: int | None) -> None:
    import torch

    from tmln.lab.estimate import estimate
    from tmln.lab.executors import cores
    from tmln.lab.footprint import shown
    from tmln.lab.tally import duration

    open_jobs = [job for job in jobs if result_of(store, job.config) is None]
    references = sum(job.reference for job in open_jobs)
    say(f"{len(jobs)} runs, {len(jobs) - len(open_jobs)} of them done before, {references} as references for INT")
    if not open_jobs:
        return
    many = workers or max(1, min(len(open_jobs), cores() // (cpus or 1)))
    torch.set_num_threads(cpus or max(1, cores() // many))
    need = estimate(open_jobs)
    say(
        f"about {duration(need.seconds / many)} on {many} workers of {torch.get_num_threads()} threads on this machine "
        f"(a few steps tried), {need.memory / 2**30:.1f} GiB of memory each (at most {shown(need.planned)}, counted), "
        f"up to {need.disk / 2**20:.0f} MiB of disk for checkpoints"
    )
