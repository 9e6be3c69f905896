"""What a study would take: runs by state, time by a few steps of each kind that are tried, disk by what runs keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tmln.analysis.auxiliary import terms_of, units_of
from tmln.fleet.plan import Job, cost
from tmln.fleet.standings import duration
from tmln.lab.config import RunConfig, canonical
from tmln.lab.run import build, steps_of
from tmln.lab.store import Store
from tmln.learner.checkpoint import KEEP
from tmln.paper.item import Item, Recorded
from tmln.paper.scales import Scale, missing_data
from tmln.paper.work import jobs_of, waiting
from tmln.progress import track
from tmln.recipes import FAMILIES

SMALL = 10_000  # bytes of a run's configuration, result and log, about
FORWARD = 1 / 3  # of a training step's time, about


@dataclass(frozen=True)
class Kind:
    """What all runs of one benchmark, model and method share."""

    seconds: float  # of a run: its steps, and its tests after every task
    tasks: int
    model_bytes: int
    state_bytes: int


def kind_of(config: RunConfig) -> str:
    full = config.resolved()
    return canonical({key: value for key, value in full.items() if key not in ("seed", "lr", "settings")})


def try_kind(config: RunConfig, tries: int, speeds: dict[str, float]) -> Kind:
    """Steps and sizes are counted; a step is measured once for all runs of the same network and parts.

    Testing is taken as a third of a step's time for each sample, and what is saved as what the parts hold.
    """
    stream, learner = build(config)
    full = config.resolved()
    parts = canonical([full[key] for key in ("model", "model_options", *FAMILIES, "batch_size")] + [list(stream.shape)])
    if parts not in speeds:
        speeds[parts] = cost(config, tries).seconds_per_step
    tests = len(stream) * sum(len(task.test) for task in stream)
    steps = sum(steps_of(stream, learner, full["epochs"], merged=config.merged))
    steps_and_tests = steps + FORWARD * tests / learner.batch_size
    units = units_of(learner.model, stream[0].train, stream.classes)
    held = sum(term.times * units[term.unit] for term in terms_of(learner.recipe) or ())
    return Kind(speeds[parts] * steps_and_tests, len(stream), units["model"], units["model"] + held)


def forecast(items: Sequence[Item], scale: Scale, store: Store, workers: int) -> list[str]:
    """Sentences for ``--dry-run``."""
    jobs = jobs_of(items, scale)
    states = Counter(_state(store, job) for job in jobs)
    lines = [
        f"{scale.name}: {scale.about}",
        f"{len(jobs)} runs: {states['finished']} finished, {states['begun']} begun, {states['new']} not begun",
    ]
    lines += [
        f"{len(configs)} more wait for {name}, which is not at hand: tmln data get {name}"
        for name, configs in waiting(items, scale).items()
    ]
    recorded = _recordings(items, scale)
    todo = [job.config for job in jobs if _state(store, job) != "finished"]
    if not todo and not recorded:
        return [*lines, "nothing is to be trained"]
    wanted = {kind_of(config): config for config in (*todo, *(one.config for one in recorded))}
    speeds: dict[str, float] = {}
    trying = track(list(wanted.items()), "trying a few steps")
    kinds = {kind: try_kind(config, scale.tries, speeds) for kind, config in trying}
    seconds = sum(kinds[kind_of(config)].seconds for config in todo)
    again = sum(_share(one, kinds) * kinds[kind_of(one.config)].seconds for one in recorded)
    disk = sum(SMALL + KEEP * kinds[kind_of(config)].state_bytes for config in todo)
    disk += sum(_points(one, kinds) * kinds[kind_of(one.config)].model_bytes for one in recorded)
    recording = f" and {duration(again)} once more to record weights" if recorded else ""
    lines.append(
        f"about {duration(seconds)} of training{recording}: by the best of {scale.tries} steps of {len(speeds)} kinds, "
        f"one run at a time on {torch.get_num_threads()} thread(s)"
    )
    lines.append(f"with {workers} workers at a time about {duration(seconds / workers + again)}, if cores are free")
    lines.append(f"at most {disk / 1e9:.2f} GB on disk: {KEEP} checkpoints a run, and the recorded weights")
    return lines


def _state(store: Store, job: Job) -> str:
    run = store.find(job.config)
    try:
        return "new" if run is None else "finished" if run.finished else "begun"
    except ValueError:  # of a newer version, and left alone
        return "finished"


def _recordings(items: Sequence[Item], scale: Scale) -> list[Recorded]:
    """Each once, though Table 5 and Figure 2 share some."""
    every = [one for item in items for one in item.recordings(scale) if missing_data(one.config.benchmark) is None]
    return list({(canonical(one.config.resolved()), one.tasks, one.checkpoints): one for one in every}.values())


def _share(one: Recorded, kinds: dict[str, Kind]) -> float:
    return 1.0 if one.tasks is None else one.tasks / kinds[kind_of(one.config)].tasks


def _points(one: Recorded, kinds: dict[str, Kind]) -> int:
    return 1 + (one.tasks or kinds[kind_of(one.config)].tasks) * max(1, one.checkpoints)
