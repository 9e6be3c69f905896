"""Every table and figure by name, the runs that items need, and an estimate of their time."""

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
from tmln.experiments.launch import RunOptions
from tmln.experiments.store import Store
from tmln.paper import anchor_table, figure3, shield, tuning
from tmln.paper.measurements import BARRIER_ITEM, FIGURE2_ITEM, TABLE4_ITEM, TABLE5_ITEM
from tmln.paper.recipes import CONFIRM_ITEM, RECIPES_ITEM
from tmln.paper.scales import Scale, missing_data
from tmln.paper.study import Item, RecordingRequest, Study, get_scale_mark
from tmln.paper.tables import TABLE1_ITEM, TABLE2_ITEM, TABLE3_ITEM, TABLE6_ITEM

_ITEMS = (
    tuning.ITEM, TABLE1_ITEM, TABLE2_ITEM, TABLE3_ITEM, TABLE4_ITEM, TABLE5_ITEM, TABLE6_ITEM, FIGURE2_ITEM,
    figure3.ITEM, BARRIER_ITEM, RECIPES_ITEM, CONFIRM_ITEM, shield.ITEM, anchor_table.ITEM,
)  # fmt: skip
ITEMS: dict[str, Item] = {item.name: item for item in _ITEMS}


ALL = ArraySlice()


def plan_jobs(items: Iterable[Item], scale: Scale, share: ArraySlice = ALL) -> list[Job]:
    """Return every run whose data are there, once; references of INT come first.

    Runs are divided before data are checked, so that machines with other data divide alike.
    """
    return group_by_data(items, scale, share).get(None, [])


def group_by_data(items: Iterable[Item], scale: Scale, share: ArraySlice = ALL) -> dict[str | None, list[Job]]:
    """Return the runs by the data set that they wait for; None if it is there."""
    found: dict[str | None, list[Job]] = {}
    missing = cache(missing_data)
    for job in share.of(plan([config for item in items for config in item.runs(scale)], "none")):
        found.setdefault(missing(job.config.benchmark), []).append(job)
    return found


def published_study(scale: Scale, items: Iterable[Item], path: Path) -> tuple[Study, list[Item]]:
    """Return a study of published results, and the items that they cover."""
    found = {result.name: result for result in read_results(path)[0]}
    measured = {one.kind for one in read_analyses(path) if get_scale_mark(scale) in one.name}
    requested = list(items)
    kept = [
        item for item in requested if item.measures in measured or any(run_id(one) in found for one in item.runs(scale))
    ]
    if not kept:
        names = ", ".join(item.name for item in requested)
        raise ValueError(f"{path} holds no run of {names} at scale {scale.name}; without --published they are run")
    return Study(scale, Store(path), published=found), kept


def estimate_study(
    items: Sequence[Item],
    scale: Scale,
    store: Store,
    options: RunOptions,
    executor: ExecutorConfig,
    share: ArraySlice = ALL,
) -> list[str]:
    """Return sentences for ``--dry-run``: runs by state, missing data, estimated time."""
    waiting = group_by_data(items, scale, share)
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
    found = estimate_runs(todo, options, executor, [one.config for one in recorded])
    lines += found.lines()
    if recorded:
        seconds, disk = map(sum, zip(*(_estimate_recording(one, found.estimator) for one in recorded), strict=True))
        lines.append(f"then {duration(seconds)} to train once more and record weights, {disk / 2**20:.0f} MiB of them")
    return lines


def recordings(items: Sequence[Item], scale: Scale) -> list[RecordingRequest]:
    """Return each recording once; Table 5 and Figure 2 share some."""
    every = [one for item in items for one in item.recordings(scale) if missing_data(one.config.benchmark) is None]
    return list({(canonical(one.config.resolved()), one.tasks, one.checkpoints): one for one in every}.values())


def _estimate_recording(one: RecordingRequest, estimator: Estimator) -> tuple[float, int]:
    """Return the seconds of a recording, and the bytes of its weights."""
    need = estimator.estimate(one.config)
    tasks = one.tasks or need.tasks
    return need.seconds * tasks / need.tasks, need.model_bytes * (1 + tasks * max(1, one.checkpoints))
