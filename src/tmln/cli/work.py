"""Runs that a command has done: shown while they are at work, foretold, and summed up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from tmln.cli.echo import say
from tmln.cli.tables import print_results
from tmln.printable import one_line

if TYPE_CHECKING:
    from tmln.cli.options import How
    from tmln.executors.array_slice import ArraySlice
    from tmln.executors.config import ExecutorConfig
    from tmln.executors.interfaces import Executor
    from tmln.executors.plan import Job
    from tmln.executors.progress_display import Display
    from tmln.executors.schedule import Failure
    from tmln.experiments.config import RunConfig
    from tmln.experiments.result import Result
    from tmln.experiments.run_options import RunOptions
    from tmln.experiments.store import Store


def work(
    configs: Sequence[RunConfig],
    how: How,
    executor: ExecutorConfig,
    dry_run: bool = False,
    pool: Executor | None = None,
    accumulate: int = 1,
    shard: str | None = None,
) -> None:
    """Do what is not done yet, and show the table of all; or only say what that would take."""
    from tmln.cli.options import run_options
    from tmln.executors.array_slice import read_slice
    from tmln.executors.execute import execute
    from tmln.executors.plan import plan, state_of
    from tmln.experiments.store import Store

    share = read_slice(shard)
    store, every = Store(how.out), plan(configs, how.oracle.value)
    jobs = share.of(every)
    if not share.whole:
        say(shared_out(len(jobs), len(every), share), err=True)
    if not jobs:
        return
    terms = replace(run_options(how, how.oracle.value, executor), accumulate=accumulate)
    if dry_run:
        for line in foretold(store, jobs, terms, executor):
            say(line)
        return
    if any(job.reference and state_of(store, job) != "finished" for job in jobs):
        say("INT needs reference runs first, which all methods share (--oracle none leaves it out)", err=True)
    with display_of(jobs) as display:
        failures = execute(store, jobs, terms, executor, pool=pool, on_event=display.note)
    _conclude(store, jobs, failures, terms)


def shared_out(mine: int, every: int, share: ArraySlice) -> str:
    """``shard 2/8: 5 of 40 runs``, and how to see all of them."""
    return f"shard {share}: {mine} of {every} runs; once all are done, the same command without --shard shows them"


def display_of(jobs: Sequence[Job], brief: bool = False) -> Display:
    """Each job by its method and the settings in which it differs from its kin, and its benchmark if there are more."""
    from tmln.analysis.rows import label_methods
    from tmln.executors.progress_display import Display
    from tmln.experiments.config import run_id

    full = [job.config.resolved() for job in jobs]
    several = len({config["benchmark"] for config in full}) > 1
    labels = {}
    for job, config, label in zip(jobs, full, label_methods(full), strict=True):
        where = f"{config['benchmark']}, " if several else ""
        labels[run_id(job.config)] = (job, f"{where}{label}, seed {config['seed']}{job.why}")
    return Display(labels, brief=brief)


def result_of(store: Store, config: RunConfig) -> Result | None:
    """None for a run that is not there or not finished."""
    run = store.find(config)
    return None if run is None else run.result


def _conclude(store: Store, jobs: Sequence[Job], failures: Sequence[Failure], terms: RunOptions) -> None:
    """The table of all that is finished, then what is not, and why."""
    from tmln.analysis.notes import version_notes
    from tmln.analysis.references import with_references
    from tmln.experiments.config import run_id

    failed = {run_id(failure.job.config) for failure in failures}
    if len(failed) == len(jobs) and len({failure.error for failure in failures}) == 1:  # said once, as any mistake is
        raise ValueError(failures[0].error) from failures[0].cause
    found = [result_of(store, job.config) for job in jobs if run_id(job.config) not in failed]
    wanted = None if terms.oracle == "none" else terms.oracle
    results = with_references((result for result in found if result is not None), wanted)
    if results:
        print_results(results)
    if lacking := _lacking(results, terms):
        say(f"{lacking}: they had finished before, and are not run again; another --out makes them anew")
    for note in version_notes(results):
        say(str(note))
    say(f"runs: {store.root}")
    for failure in failures:
        say(one_line(f"failed: {failure.job.label}: {failure.error}"), err=True)
    if failures:
        say(f"{len(failures)} of {len(jobs)} runs failed; the same command tries them again", err=True)
        raise typer.Exit(1)


def _lacking(results: Sequence[Result], terms: RunOptions) -> str:
    """How many have not what was asked to be observed on the way."""
    asked = {
        "tests within tasks (--eval-every)": [bool(r.within) for r in results if terms.eval_every and not r.merged],
        "predictions (--keep)": [bool(r.predictions_sha256) for r in results if "predictions" in terms.keep],
    }
    return "; ".join(
        f"{there.count(False)} of {len(there)} runs have no {what}" for what, there in asked.items() if False in there
    )


def foretold(store: Store, jobs: Sequence[Job], terms: RunOptions, executor: ExecutorConfig) -> Iterator[str]:
    """What a dry run says: the first configuration whole, the runs by their state, and what is left will take."""
    from tmln.executors.estimate import forecast
    from tmln.executors.plan import state_of

    yield next((job for job in jobs if not job.reference), jobs[0]).config.to_yaml().rstrip()
    states = Counter(state_of(store, job) for job in jobs)
    references = sum(job.reference for job in jobs)
    yield f"# {len(jobs)} runs: {counted(states)}; {references} of them as references for INT"
    todo = [job.config for job in jobs if state_of(store, job) != "finished"]
    if todo:
        yield from (f"# {line}" for line in forecast(todo, terms, executor).lines())


def counted(states: Counter[Any]) -> str:
    """``3 finished, 1 begun, 6 not begun``."""
    return f"{states['finished']} finished, {states['begun']} begun, {states['new']} not begun"
