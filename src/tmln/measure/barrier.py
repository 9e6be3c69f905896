"""Linear mode connectivity: losses of earlier tasks between the solutions of two tasks.

The barrier (Frankle et al. 2020) is the maximum by which the loss on the straight line between two
solutions exceeds the linear interpolation of the losses at its ends. It is never negative. A loss
that only rises, ever more steeply, has no barrier although much is forgotten. The climb is
therefore given too, the maximum excess over the loss at the earlier solution, and the excess over
the higher end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tmln.analysis.labels import label_methods
from tmln.analysis.statistics import summarise
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.store import Store
from tmln.measure.losses import LossProbe, NormStatistics, Split, check_options, make_probe, mix_buffers
from tmln.measure.trajectory import Recording, record, record_all
from tmln.progress import track

NUMBERS = ("barrier", "climb", "excess", "accuracy_barrier", "before", "after")


def compute_barrier(values: Sequence[float], shares: Sequence[float]) -> float:
    """Return max over s of v(s) - ((1 - s) v(0) + s v(1)).

    Infinite if a value between the ends is not finite, NaN if an end is not.

    >>> compute_barrier([0.0, 1.0, 0.0], [0.0, 0.5, 1.0])
    1.0
    """
    if len(values) != len(shares) or len(values) < 2 or shares[0] != 0.0 or shares[-1] != 1.0:
        raise ValueError("a path has a value for each of its points, from 0 to 1")
    first, last = values[0], values[-1]
    if not math.isfinite(first) or not math.isfinite(last):
        return math.nan
    return compute_excess([v - ((1 - s) * first + s * last) for v, s in zip(values, shares, strict=True)], 0.0)


def compute_excess(values: Sequence[float], level: float) -> float:
    """Return how far the highest value exceeds a level; infinite if a value is not finite."""
    if not math.isfinite(level):
        return math.nan
    return max(values) - level if all(math.isfinite(value) for value in values) else math.inf


def measure_barriers(
    configs: Sequence[RunConfig],
    store: Store,
    *,
    points: int = 11,
    samples: int | None = 500,
    bn: NormStatistics = "keep",
    split: Split = "test",
) -> dict[str, Any]:
    """Measure barriers; configurations that differ in the seed only are one entry of ``methods``.

    Args:
        configs: the runs; all of one benchmark.
        store: where recordings are kept.
        points: points on each line, its ends included.
        samples: samples per task whose loss is taken; None for all.
        bn: ``"keep"`` mixes running statistics, ``"reestimate"`` computes them at each point.
        split: the data whose loss is taken.

    Returns: Plain values. ``summary`` has mean, deviation and interval over seeds of each number,
        which for one seed is the mean over pairs of consecutive solutions of the mean over earlier
        tasks. Diverged runs are named in ``problems``.
    """
    if points < 3:
        raise ValueError(f"a path has at least 3 points, its ends among them, not {points}")
    check_options(samples, split, bn)
    if not configs:
        raise ValueError("a barrier is of at least one method")
    resolved = [config.resolved() for config in configs]
    if len({one["benchmark"] for one in resolved}) > 1:
        raise ValueError("measure_barriers are compared on one benchmark")
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
        entry["seeds"].append(measure_run(recording, label, shares, samples=samples, bn=bn, split=split))
    if not any(entry["seeds"] for entry in found.values()):
        raise ValueError("no barrier: " + "; ".join(f"{e['label']}: {e['problems'][-1]}" for e in found.values()))
    for entry in found.values():
        entry["summary"] = {key: asdict(summarise([one[key] for one in entry["seeds"]])) for key in NUMBERS}
    head = {"benchmark": configs[0].benchmark, "model": resolved[0]["model"], "samples": samples, "bn": bn}
    return {**head, "split": split, "tasks": tasks, "shares": shares, "methods": [*found.values()]}


def measure_run(
    recording: Recording,
    label: str,
    shares: Sequence[float],
    *,
    samples: int | None = 500,
    bn: NormStatistics = "keep",
    split: Split = "test",
) -> dict[str, Any]:
    """Measure all pairs of consecutive solutions of one run."""
    probes: list[LossProbe] = []
    pairs: list[dict[str, Any]] = []
    seed = recording.config.seed
    for later in track(range(1, len(recording.solutions)), f"{label}, seed {seed}: measure_barriers"):
        probes.append(make_probe(recording, later - 1, samples=samples, bn=bn, split=split))
        if recording.config.logit_mask == "seen":
            for probe in probes:
                probe.open_classes = recording.stream.seen(later)
        pairs.append({"from": later, "to": later + 1, "tasks": _measure_lines(recording, later, probes, shares)})
    numbers = {key: _mean([_mean([one[key] for one in pair["tasks"]]) for pair in pairs]) for key in NUMBERS}
    return {"seed": seed, "pairs": pairs, **numbers}


def _mean(values: Sequence[float]) -> float:
    """Return the mean; NaN if any value is."""
    return math.fsum(values) / len(values)


def _measure_lines(
    recording: Recording, later: int, probes: Sequence[LossProbe], shares: Sequence[float]
) -> list[dict[str, Any]]:
    """Return loss and accuracy of each earlier task on the line between two solutions.

    Running statistics of batch norm are mixed like weights, so that the ends are the trained
    networks; probes that re-estimate them do so at every point.
    """
    ends = recording.solutions[later - 1 : later + 1]
    first, last = (recording.weights(end) for end in ends)
    measured = []
    for share in shares:
        weights = (1.0 - share) * first + share * last
        buffers = mix_buffers(recording, ends, (1.0 - share, share))
        measured.append([probe(weights, buffers) for probe in probes])
    return [_summarise_line(task + 1, [found[task] for found in measured], shares) for task in range(len(probes))]


def _summarise_line(task: int, measured: Sequence[tuple[float, float]], shares: Sequence[float]) -> dict[str, Any]:
    losses, accuracies = [loss for loss, _ in measured], [accuracy for _, accuracy in measured]
    return {
        "task": task,
        "loss": losses,
        "accuracy": accuracies,
        "barrier": compute_barrier(losses, shares),
        "climb": compute_excess(losses, losses[0]),
        "excess": compute_excess(losses, max(losses[0], losses[-1])),
        "accuracy_barrier": compute_barrier([-value for value in accuracies], shares),
        "before": losses[0],
        "after": losses[-1],
    }
