"""The loss of the first task around a run's way to the second: a plane, the way in it, a grid of losses.

The plane is through the start and the solutions of tasks 1 and 2, or random and filter-normalised (Li et al. 2018)
around the solution of task 1. Running statistics of batch norm belong to a network as its weights do: ``keep`` mixes
those of the three trained networks in the shares that the point has of them (of the nearest side beyond the triangle),
so that at the three markers the loss is the trained network's; around a random plane they are those of task 1's
solution. ``reestimate`` computes them at every point from training data of task 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from tmln.analysis.rows import label_methods
from tmln.experiments.config import RunConfig
from tmln.experiments.store import Store
from tmln.measure.loss_at import BatchNorm, LossAt, Split, check_options, loss_at_task, mixed_buffers
from tmln.measure.plane import Plane, Projected, mixture, random_plane, task_plane
from tmln.measure.trajectory import Recording, record, record_all
from tmln.measure.trajectory_losses import MOMENTS, losses_of
from tmln.progress import track

Mode = Literal["plane", "random"]
MARGIN = 0.25  # of the way's extent, around it
SHARED = ("benchmark", "benchmark_options", "model", "model_options", "seed", "logit_mask")


@dataclass(frozen=True, eq=False)
class Way:
    """A run's plane and its way in it; ``corners`` are the start and the two solutions, all that is kept of weights."""

    label: str
    recording: Recording
    plane: Plane
    corners: tuple[Projected, ...]
    points: tuple[dict[str, Any], ...]

    @property
    def residual(self) -> float:
        """Root of the mean square distance off the plane, relative to that from the plane's origin; of checkpoints."""
        between = [point for point in self.points if point["marker"] is None]
        distance = math.fsum(point["distance"] ** 2 for point in between)
        return math.sqrt(math.fsum(point["residual"] ** 2 for point in between) / distance) if distance else math.nan


def landscape(
    configs: Sequence[RunConfig],
    store: Store,
    *,
    resolution: int = 25,
    samples: int | None = 500,
    mode: Mode = "plane",
    bn: BatchNorm = "keep",
    split: Split = "test",
    checkpoints: int = 20,
) -> dict[str, Any]:
    """Plain values: one entry of ``methods`` for each configuration, ``problem`` set where there is no picture of it.

    All are drawn on the same axes. ``loss[i][j]`` is at ``(x[j], y[i])``; ``points`` are the way, with their distance
    off the plane. Configurations are of one benchmark, model and seed, and so begin at the same weights.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"mode is {' or '.join(get_args(Mode))}, not {mode!r}")
    if resolution < 2:
        raise ValueError(f"a grid has a resolution of at least 2 points a side, not {resolution}")
    check_options(samples, split, bn)
    labels = _labels(configs)
    record_all(configs, store, tasks=2, checkpoints=checkpoints)
    entries: list[dict[str, Any]] = []
    ways: dict[str, Way] = {}
    for label, config in zip(labels, configs, strict=True):
        recording = record(config, store, tasks=2, checkpoints=checkpoints)
        entry: dict[str, Any] = {"method": config.method, "label": label, "problem": None}
        entries.append(entry)
        try:
            way = ways[label] = way_of(label, recording, mode)
        except ValueError as error:
            entry["problem"] = str(error)
            continue
        markers = [{"x": corner.x, "y": corner.y} for corner in way.corners]
        losses = losses_of(recording, samples=samples, split=split)
        entry |= {"points": way.points, "residual": way.residual, "losses": losses, "note": recording.note}
        entry["markers"] = dict(zip(MOMENTS, markers, strict=True))
    if not ways:
        raise ValueError("no landscape: " + "; ".join(f"{entry['label']}: {entry['problem']}" for entry in entries))
    xs, ys = axes_of([*ways.values()], mode, resolution)
    for entry in entries:
        if entry["label"] in ways:
            way = ways[entry["label"]]
            probe = loss_at_task(way.recording, 0, samples=samples, split=split, bn=bn, known=1)
            entry["loss"] = grid_losses(way, probe, xs, ys, mode)
    stream = next(iter(ways.values())).recording.stream
    return {
        "benchmark": configs[0].benchmark,
        "model": configs[0].resolved()["model"],
        "seed": configs[0].seed,
        "mode": mode,
        "bn": bn,
        "split": split,
        "samples": min(samples or math.inf, len(stream[0].test if split == "test" else stream[0].train)),
        "tasks": [task.name for task in stream.tasks[:2]],
        "x": xs,
        "y": ys,
        "methods": entries,
    }


def way_of(label: str, recording: Recording, mode: Mode = "plane") -> Way:
    """The plane of a recording of two tasks, and every checkpoint in it; a ValueError where there is none."""
    if recording.diverged:
        raise ValueError(f"diverged ({recording.diverged})")
    anchors = [recording.start, *recording.solutions[:2]]
    vectors = [recording.weights(point) for point in anchors]
    if mode == "random":
        trainable = [name for name, p in recording.model.named_parameters() if p.requires_grad]
        plane = random_plane([anchors[1].state[name] for name in trainable])
    else:
        plane = task_plane(vectors[0], vectors[1], vectors[2])
    points = []
    for point in recording.checkpoints:
        marker = next((moment for moment, anchor in zip(MOMENTS, anchors, strict=True) if anchor is point), None)
        place = asdict(plane.project(recording.weights(point)))
        points.append({"task": point.task + 1, "step": point.step, "marker": marker, **place})
    corners = tuple(plane.project(vector) for vector in vectors)
    return Way(label, replace(recording, checkpoints=tuple(anchors)), plane, corners, tuple(points))


def axes_of(ways: Sequence[Way], mode: Mode, resolution: int) -> tuple[list[float], list[float]]:
    """A square around all ways; of random directions, one filter norm to each side, as Li et al. draw it."""
    if mode == "random":
        side = np.linspace(-1.0, 1.0, resolution).tolist()
        return side, side
    places = np.array([[point["x"], point["y"]] for way in ways for point in way.points])
    low, high = places.min(axis=0), places.max(axis=0)
    middle, half = (low + high) / 2, (0.5 + MARGIN) * float((high - low).max())
    x, y = (np.linspace(centre - half, centre + half, resolution).tolist() for centre in middle)
    return x, y


def grid_losses(way: Way, probe: LossAt, xs: Sequence[float], ys: Sequence[float], mode: Mode) -> list[list[float]]:
    """The loss at every point of the grid, a row for each y; NaN where it is not finite."""
    anchors = [way.recording.start, *way.recording.solutions[:2]]
    corners = [(corner.x, corner.y) for corner in way.corners]
    kept = way.recording.buffers(anchors[1])
    flat = []
    for x, y in track([(x, y) for y in ys for x in xs], f"{way.label}: {len(xs)} x {len(ys)} losses"):
        buffers = kept
        if mode == "plane" and kept and not probe.refresh:
            buffers = mixed_buffers(way.recording, anchors, mixture((x, y), corners))
        loss = probe(way.plane.at(x, y), buffers).loss
        flat.append(loss if math.isfinite(loss) else math.nan)
    return np.array(flat).reshape(len(ys), len(xs)).tolist()


def _labels(configs: Sequence[RunConfig]) -> list[str]:
    if not configs:
        raise ValueError("a landscape is of at least one method")
    resolved = [config.resolved() for config in configs]
    for key in SHARED:
        if any(one[key] != resolved[0][key] for one in resolved):
            raise ValueError(f"a landscape compares runs from the same start; these differ in {key}")
    labels = label_methods(resolved)
    if len(set(labels)) < len(labels):
        raise ValueError(f"the same run is asked for twice: {', '.join(labels)}")
    return labels
