"""Linear mode connectivity: what earlier tasks lose on the straight line from one task's solution to the next.

The barrier is the definition of Frankle et al. 2020: the most by which the loss on the line exceeds the straight line
between its ends. It is never negative, and says nothing of the ends themselves: where the loss only rises, ever more
steeply, there is no barrier and much is forgotten. So the climb is there too, the most by which the loss exceeds that
of the earlier solution, and the excess, by which it exceeds the higher end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tmln.analysis.rows import label_methods
from tmln.analysis.statistics import summarise
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.store import Store
from tmln.measure.loss_at import BatchNorm, LossAt, Split, check_options, loss_at_task, mixed_buffers
from tmln.measure.trajectory import Recording, record, record_all
from tmln.progress import track

NUMBERS = ("barrier", "climb", "excess", "accuracy_barrier", "before", "after")


def barrier_of(values: Sequence[float], shares: Sequence[float]) -> float:
    """max over s of v(s) - ((1 - s) v(0) + s v(1)); infinite where a value on the way is not finite, NaN for an end.

    >>> barrier_of([0.0, 1.0, 0.0], [0.0, 0.5, 1.0])
    1.0
    """
    if len(values) != len(shares) or len(values) < 2 or shares[0] != 0.0 or shares[-1] != 1.0:
        raise ValueError("a path has a value for each of its points, from 0 to 1")
    first, last = values[0], values[-1]
    if not math.isfinite(first) or not math.isfinite(last):
        return math.nan
    return above([v - ((1 - s) * first + s * last) for v, s in zip(values, shares, strict=True)], 0.0)


def above(values: Sequence[float], level: float) -> float:
    """How far the highest value is above a level; infinite where a value is not finite."""
    if not math.isfinite(level):
        return math.nan
    return max(values) - level if all(math.isfinite(value) for value in values) else math.inf


def barriers(
    configs: Sequence[RunConfig],
    store: Store,
    *,
    points: int = 11,
    samples: int | None = 500,
    bn: BatchNorm = "keep",
    split: Split = "test",
) -> dict[str, Any]:
    """Plain values: an entry of ``methods`` for configurations that differ in their seed only, with every path.

    ``summary`` has mean, deviation and interval over seeds of each number, which of a seed is the mean over all pairs
    of consecutive solutions of the mean over earlier tasks. Runs that diverged are named in ``problems``.
    """
    if points < 3:
        raise ValueError(f"a path has at least 3 points, its ends among them, not {points}")
    check_options(samples, split, bn)
    if not configs:
        raise ValueError("a barrier is of at least one method")
    resolved = [config.resolved() for config in configs]
    if len({one["benchmark"] for one in resolved}) > 1:
        raise ValueError("barriers are compared on one benchmark")
    if len({run_id(config) for config in configs}) < len(configs):
        raise ValueError("the same run is asked for twice")
    labels = label_methods(resolved)
    record_all(configs, store, least=2, checkpoints=0)
    shares = [index / (points - 1) for index in range(points)]
    found: dict[str, dict[str, Any]] = {}
    tasks: list[str] = []
    for label, config in zip(labels, configs, strict=True):
        recording = record(config, store, checkpoints=0)
        tasks = [task.name for task in recording.stream]
        entry = found.setdefault(label, {"method": config.method, "label": label, "seeds": [], "problems": []})
        entry["problems"] += [recording.note] if recording.note else []
        if recording.diverged:
            entry["problems"].append(f"seed {config.seed} diverged and is left out ({recording.diverged})")
            continue
        entry["seeds"].append(of_run(recording, label, shares, samples=samples, bn=bn, split=split))
    if not any(entry["seeds"] for entry in found.values()):
        raise ValueError("no barrier: " + "; ".join(f"{e['label']}: {e['problems'][-1]}" for e in found.values()))
    for entry in found.values():
        entry["summary"] = {key: asdict(summarise([one[key] for one in entry["seeds"]])) for key in NUMBERS}
    head = {"benchmark": configs[0].benchmark, "model": resolved[0]["model"], "samples": samples, "bn": bn}
    return {**head, "split": split, "tasks": tasks, "shares": shares, "methods": [*found.values()]}


def of_run(
    recording: Recording,
    label: str,
    shares: Sequence[float],
    *,
    samples: int | None = 500,
    bn: BatchNorm = "keep",
    split: Split = "test",
) -> dict[str, Any]:
    """Every pair of consecutive solutions, and the run's numbers."""
    probes: list[LossAt] = []
    pairs: list[dict[str, Any]] = []
    seed = recording.config.seed
    for later in track(range(1, len(recording.solutions)), f"{label}, seed {seed}: barriers"):
        probes.append(loss_at_task(recording, later - 1, samples=samples, bn=bn, split=split))
        if recording.config.logit_mask == "seen":
            for probe in probes:
                probe.open_classes = recording.stream.seen(later)
        pairs.append({"from": later, "to": later + 1, "tasks": _paths(recording, later, probes, shares)})
    numbers = {key: _mean([_mean([one[key] for one in pair["tasks"]]) for pair in pairs]) for key in NUMBERS}
    return {"seed": seed, "pairs": pairs, **numbers}


def _mean(values: Sequence[float]) -> float:
    """NaN if any is: a part that cannot be said leaves nothing to say of the whole."""
    return math.fsum(values) / len(values)


def _paths(recording: Recording, later: int, probes: Sequence[LossAt], shares: Sequence[float]) -> list[dict[str, Any]]:
    """Loss and accuracy of each earlier task on the line between two solutions.

    Running statistics of batch norm are mixed as the weights are, so that the ends are the trained networks; probes
    that re-estimate them do so at every point, the ends included.
    """
    ends = recording.solutions[later - 1 : later + 1]
    first, last = (recording.weights(end) for end in ends)
    measured = []
    for share in shares:
        weights = (1.0 - share) * first + share * last
        buffers = mixed_buffers(recording, ends, (1.0 - share, share))
        measured.append([probe(weights, buffers) for probe in probes])
    return [_path(task + 1, [found[task] for found in measured], shares) for task in range(len(probes))]


def _path(task: int, measured: Sequence[tuple[float, float]], shares: Sequence[float]) -> dict[str, Any]:
    losses, accuracies = [loss for loss, _ in measured], [accuracy for _, accuracy in measured]
    return {
        "task": task,
        "loss": losses,
        "accuracy": accuracies,
        "barrier": barrier_of(losses, shares),
        "climb": above(losses, losses[0]),
        "excess": above(losses, max(losses[0], losses[-1])),
        "accuracy_barrier": barrier_of([-value for value in accuracies], shares),
        "before": losses[0],
        "after": losses[-1],
    }
