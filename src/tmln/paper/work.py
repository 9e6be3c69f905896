"""The runs that items declare, each once, and what they would take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from tmln.analysis.read import read_analyses, read_results
from tmln.executors.config import ExecutorConfig
from tmln.executors.estimate import Estimator, estimate_runs
from tmln.executors.plan import ArraySlice, Job, plan, state_of
from tmln.executors.progress_display import duration
from tmln.experiments.config import canonical, run_id
from tmln.experiments.run_options import RunOptions
from tmln.experiments.store import Store
from tmln.paper.evidence import Study
from tmln.paper.item import Item, Recorded
from tmln.paper.measured import mark
from tmln.paper.scales import Scale, missing_data

ALL = ArraySlice()


def jobs_of(items: Iterable[Item], scale: Scale, share: ArraySlice = ALL) -> list[Job]:
    """Every run once, the joint ones, which are the reference of INT, first; only those whose data are at hand.

    Runs are dealt out before that is looked at: machines that have other data deal alike.
    """
    return by_data(items, scale, share).get(None, [])


def by_data(items: Iterable[Item], scale: Scale, share: ArraySlice = ALL) -> dict[str | None, list[Job]]:
    """By the data set that they wait for; None: it is at hand."""
    found: dict[str | None, list[Job]] = {}
    missing = cache(missing_data)
    for job in share.of(plan([config for item in items for config in item.runs(scale)], "none")):
        found.setdefault(missing(job.config.benchmark), []).append(job)
    return found


def published_study(scale: Scale, items: Iterable[Item], path: Path) -> tuple[Study, list[Item]]:
    """Published results in place of runs, and the items that they have a run or a measurement of."""
    found = {result.name: result for result in read_results(path)[0]}
    measured = {one.kind for one in read_analyses(path) if mark(scale) in one.name}
    asked = list(items)
    kept = [
        item for item in asked if item.measures in measured or any(run_id(one) in found for one in item.runs(scale))
    ]
    if not kept:
        names = ", ".join(item.name for item in asked)
        raise ValueError(f"{path} holds no run of {names} at scale {scale.name}; without --published they are run")
    return Study(scale, Store(path), published=found), kept


def foretold(
    items: Sequence[Item],
    scale: Scale,
    store: Store,
    terms: RunOptions,
    executor: ExecutorConfig,
    share: ArraySlice = ALL,
) -> list[str]:
    """Sentences for ``--dry-run``: runs by their state, those that wait for data, and what the rest takes."""
    waiting = by_data(items, scale, share)
    jobs = waiting.pop(None, [])
    states = [state_of(store, job) for job in jobs]
    counts = Counter(states)
    lines = [
        f"{scale.name}: {scale.about}",
        f"{len(jobs)} runs: {counts['finished']} finished, {counts['begun']} begun, {counts['new']} not begun",
    ]
    lines += [
        f"{len(more)} more wait for {name}, which is not at hand: tmln data get {name}"
        for name, more in waiting.items()
    ]
    recorded = recordings(items, scale) if share.whole else []
    todo = [job.config for job, state in zip(jobs, states, strict=True) if state != "finished"]
    if not todo and not recorded:
        return [*lines, "nothing is to be trained"]
    found = estimate_runs(todo, terms, executor, [one.config for one in recorded])
    lines += found.lines()
    if recorded:
        seconds, disk = map(sum, zip(*(_recording(one, found.estimator) for one in recorded), strict=True))
        lines.append(f"then {duration(seconds)} to train once more and record weights, {disk / 2**20:.0f} MiB of them")
    return lines


def recordings(items: Sequence[Item], scale: Scale) -> list[Recorded]:
    """Each once, though Table 5 and Figure 2 share some."""
    every = [one for item in items for one in item.recordings(scale) if missing_data(one.config.benchmark) is None]
    return list({(canonical(one.config.resolved()), one.tasks, one.checkpoints): one for one in every}.values())


def _recording(one: Recorded, estimator: Estimator) -> tuple[float, int]:
    """Seconds, and bytes of the weights at the start and at every point of every task."""
    need = estimator.estimate(one.config)
    tasks = one.tasks or need.tasks
    return need.seconds * tasks / need.tasks, need.model_bytes * (1 + tasks * max(1, one.checkpoints))
