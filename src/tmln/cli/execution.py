"""Run jobs with a progress display, estimate them for ``--dry-run``, and show their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from tmln.cli.echo import echo, echo_block
from tmln.cli.options import RecordingOptions, ReferenceName, run_options
from tmln.cli.tables import print_results

if TYPE_CHECKING:
    from tmln.executors.config import ExecutorConfig
    from tmln.executors.execute import Failure
    from tmln.executors.interfaces import Executor
    from tmln.executors.plan import ArraySlice, Job
    from tmln.executors.progress_display import ProgressDisplay
    from tmln.experiments.config import RunConfig
    from tmln.experiments.launch import RunOptions
    from tmln.experiments.result import Oracle, Result
    from tmln.experiments.store import Store


def run_configs(
    configs: Sequence[RunConfig],
    recording: RecordingOptions,
    oracle: ReferenceName | None,
    executor: ExecutorConfig,
    dry_run: bool = False,
    pool: Executor | None = None,
    accumulate: int = 1,
    shard: str | None = None,
) -> None:
    """Run what has not finished yet and show the table of all; with ``dry_run`` only estimate."""
    from tmln.executors.execute import execute
    from tmln.executors.plan import plan, read_slice, state_of
    from tmln.experiments.store import Store

    share = read_slice(shard)
    kind = choose_reference(configs, oracle)
    store, every = Store(recording.runs), plan(configs, kind)
    jobs = share.of(every)
    if not share.whole:
        echo(describe_share(len(jobs), len(every), share), err=True)
    if not jobs:
        return
    options = replace(run_options(recording, kind, executor), accumulate=accumulate)
    if dry_run:
        for line in estimate_lines(store, jobs, options, executor):
            echo_block(line)
        return
    check_data_of([job.config for job in jobs if state_of(store, job) != "finished"], executor)
    if any(job.reference and state_of(store, job) != "finished" for job in jobs):
        echo("INT needs reference runs first, which all methods share (--int-reference none leaves it out)", err=True)
    with display_of(jobs) as display:
        failures = execute(store, jobs, options, executor, pool=pool, on_event=display.update)
    _print_outcome(store, jobs, failures, options)


def choose_reference(configs: Sequence[RunConfig], asked: ReferenceName | None) -> Oracle:
    """Return the reference of INT that was asked for; else prefix, or none of pre-trained networks.

    Joint training of a backbone on all tasks so far, at every task, takes hours, and a head in
    closed form seconds.
    """
    from tmln.models.registry import is_pretrained

    if asked is not None:
        return asked
    full = [config.resolved() for config in configs]
    return "none" if any(is_pretrained(one["model"], one["model_options"]) for one in full) else "prefix"


def check_data_of(configs: Sequence[RunConfig], executor: ExecutorConfig) -> None:
    """Raise if data are missing, before a run folder is made, where runs are of this machine."""
    from tmln.streams.benchmarks import check_data

    if executor.executor in ("local", "serial"):
        for name, options in {config.benchmark: config.benchmark_options for config in configs}.items():
            check_data(name, options)


def describe_share(mine: int, every: int, share: ArraySlice) -> str:
    """Return ``shard 2/8: 5 of 40 runs``, and how to see all of them."""
    return f"shard {share}: {mine} of {every} runs; once all are done, the same command without --shard shows them"


def display_of(jobs: Sequence[Job], brief: bool = False) -> ProgressDisplay:
    """Return a progress display that names each job by method, differing settings and seed."""
    from tmln.analysis.labels import label_methods
    from tmln.executors.progress_display import ProgressDisplay
    from tmln.experiments.config import run_id

    full = [job.config.resolved() for job in jobs]
    several = len({config["benchmark"] for config in full}) > 1
    labels = {}
    for job, config, label in zip(jobs, full, label_methods(full), strict=True):
        where = f"{config['benchmark']}, " if several else ""
        labels[run_id(job.config)] = (job, f"{where}{label}, seed {config['seed']}{job.why}")
    return ProgressDisplay(labels, brief=brief)


def print_failures(failures: Sequence[Failure]) -> None:
    """Print one line for each failed run."""
    for failure in failures:
        echo(f"failed: {failure.job.label}: {failure.error}", err=True)


def _print_outcome(store: Store, jobs: Sequence[Job], failures: Sequence[Failure], options: RunOptions) -> None:
    """Print the table of all finished runs, then what is missing or failed, and why."""
    from tmln.analysis.notes import version_notes
    from tmln.analysis.read import attach_references, mark_searched, read_searches
    from tmln.experiments.config import run_id

    failed = {run_id(failure.job.config) for failure in failures}
    if len(failed) == len(jobs) and len({failure.error for failure in failures}) == 1:
        raise ValueError(failures[0].error) from failures[0].cause  # one mistake, one line
    found = [store.find_result(job.config) for job in jobs if run_id(job.config) not in failed]
    wanted = None if options.oracle == "none" else options.oracle
    marked = mark_searched((result for result in found if result is not None), [*read_searches(store.root)])
    results = attach_references(marked, wanted)
    if results:
        print_results(results)
    if missing := _missing_observations(results, options):
        echo(f"{missing}: they had finished before, and are not run again; another --runs folder makes them anew")
    for note in version_notes(results):
        echo(str(note))
    echo(f"runs: {store.root}")
    print_failures(failures)
    if failures:
        echo(f"{len(failures)} of {len(jobs)} runs failed; the same command tries them again", err=True)
        raise typer.Exit(1)


def _missing_observations(results: Sequence[Result], options: RunOptions) -> str:
    """Return how many runs lack what ``--eval-every`` and ``--keep`` ask for."""
    requested = {
        "tests within tasks (--eval-every)": [bool(r.within) for r in results if options.eval_every and not r.merged],
        "predictions (--keep)": [bool(r.predictions_sha256) for r in results if "predictions" in options.keep],
    }
    return "; ".join(
        f"{there.count(False)} of {len(there)} runs have no {what}"
        for what, there in requested.items()
        if False in there
    )


def estimate_lines(store: Store, jobs: Sequence[Job], options: RunOptions, executor: ExecutorConfig) -> Iterator[str]:
    """Yield the first configuration as YAML, runs by state, and what the rest will cost."""
    from tmln.executors.estimate import estimate_runs
    from tmln.executors.plan import state_of

    yield next((job for job in jobs if not job.reference), jobs[0]).config.to_yaml().rstrip()
    states = Counter(state_of(store, job) for job in jobs)
    references = sum(job.reference for job in jobs)
    yield f"# {len(jobs)} runs: {count_states(states)}; {references} of them as references for INT"
    remaining = [job.config for job in jobs if state_of(store, job) != "finished"]
    if remaining:
        yield from (f"# {line}" for line in estimate_runs(remaining, options, executor).lines())


def count_states(states: Counter[Any]) -> str:
    """Return ``3 finished, 1 begun, 6 not begun``."""
    return f"{states['finished']} finished, {states['begun']} begun, {states['new']} not begun"
