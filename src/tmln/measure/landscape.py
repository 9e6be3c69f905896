"""The loss of task 1 on a plane in weight space (Figure 2 of the paper).

The plane contains the start and the solutions of tasks 1 and 2, or two random, filter-normalised
directions around the solution of task 1 (Li et al. 2018). Running statistics of batch norm are part
of a network like its weights: ``keep`` mixes those of the three trained networks in the barycentric
coordinates of the point (clamped outside the triangle), so that the loss at the three markers is
the trained network's; around a random plane they are those of task 1's solution. ``reestimate``
computes them at every point from training data of task 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from tmln.analysis.labels import label_methods
from tmln.experiments.config import RunConfig
from tmln.experiments.store import Store
from tmln.measure.losses import (
    STAGES,
    LossProbe,
    NormStatistics,
    Split,
    check_options,
    make_probe,
    measure_losses,
    mix_buffers,
)
from tmln.measure.trajectory import Recording, record, record_all
from tmln.progress import track
from tmln.seeds import seed_of

PARALLEL = 1e-6  # of a move's length: less off the first direction is rounding of single-precision weights
SMALL = 1e-10  # Li et al.'s guard against a filter drawn as zero


@dataclass(frozen=True)
class Projection:
    """Coordinates in a plane, distance of the weights from it and from its origin."""

    x: float
    y: float
    residual: float
    distance: float


@dataclass(frozen=True, eq=False)
class Plane:
    """``origin + x * first + y * second``: vectors of all weights in double precision."""

    origin: Tensor
    first: Tensor
    second: Tensor

    def at(self, x: float, y: float) -> Tensor:
        """Return origin + x * first + y * second: all weights as one vector."""
        return self.origin.add(self.first, alpha=x).add_(self.second, alpha=y)

    def project(self, weights: Tensor) -> Projection:
        """Return the nearest point of the plane; its directions need not be orthonormal."""
        move = weights - self.origin
        axes = torch.stack([self.first, self.second])
        place = torch.linalg.solve(axes @ axes.T, axes @ move)
        return Projection(float(place[0]), float(place[1]), float((move - place @ axes).norm()), float(move.norm()))


def make_task_plane(start: Tensor, first: Tensor, second: Tensor) -> Plane:
    """Return the plane through the start and the solutions of two tasks.

    u is the direction of first - start, v that of the part of second - first orthogonal to u. Both
    have length 1, so coordinates are distances: the start is (0, 0), the first solution (|first -
    start|, 0).
    """
    u, move = first - start, second - first
    if not bool(torch.isfinite(u).all() and torch.isfinite(move).all()):
        raise ValueError("weights are not finite, so there is no plane through them")
    if not float(u.norm()):
        raise ValueError("the first task did not move the weights, so there is no plane: train longer or faster")
    u = u / u.norm()
    v = move - (move @ u) * u
    v = v - (v @ u) * u  # once more: what rounding left
    if float(v.norm()) <= PARALLEL * float(move.norm()):
        how = "only along the line of the first" if float(move.norm()) else "not at all"
        raise ValueError(f"the second task moved the weights {how}, so there is no plane; --mode random needs none")
    return Plane(start, u, v / v.norm())


def make_random_plane(parameters: Sequence[Tensor], seed: int = 0) -> Plane:
    """Return the plane around these weights along two random, filter-normalised directions.

    The directions are Gaussian; each filter is scaled to the norm of the weights' own. A filter is
    a slice of the first dimension. Vectors (biases, batch norm) have no component.
    """
    axes = []
    for number in (1, 2):
        generator = torch.Generator().manual_seed(seed_of(seed, f"landscape direction {number}"))
        drawn = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in parameters]
        axes.append(torch.cat([_scale_filters(d, p).reshape(-1) for d, p in zip(drawn, parameters, strict=True)]))
    if not all(float(axis.norm()) for axis in axes):
        raise ValueError("the model has no weights of two or more dimensions that are not zero: no random directions")
    return Plane(torch.cat([p.reshape(-1).double() for p in parameters]), axes[0], axes[1])


def _scale_filters(direction: Tensor, weights: Tensor) -> Tensor:
    if weights.dim() < 2:
        return torch.zeros_like(direction)
    rows, own = direction.flatten(1), weights.double().flatten(1)
    scale: Tensor = own.norm(dim=1) / (rows.norm(dim=1) + SMALL)
    return (rows * scale[:, None]).view(weights.shape)


def compute_mixture(point: tuple[float, float], corners: Sequence[tuple[float, float]]) -> list[float]:
    """Return the barycentric coordinates of a point in a triangle, clamped to 0 outside."""
    places = torch.tensor([[x, y, 1.0] for x, y in corners], dtype=torch.float64).T
    shares = torch.linalg.solve(places, torch.tensor([*point, 1.0], dtype=torch.float64)).clamp_(min=0.0)
    return [float(share) for share in shares / shares.sum()]


Mode = Literal["plane", "random"]
MARGIN = 0.25  # around the trajectory, as a share of its extent
SHARED = ("benchmark", "benchmark_options", "model", "model_options", "seed", "logit_mask")


@dataclass(frozen=True, eq=False)
class ProjectedRun:
    """A run's plane and its checkpoints projected onto it; ``corners`` are start and solutions."""

    label: str
    recording: Recording
    plane: Plane
    corners: tuple[Projection, ...]
    points: tuple[dict[str, Any], ...]

    @property
    def residual(self) -> float:
        """Return the RMS distance of checkpoints from the plane over that from its origin."""
        between = [point for point in self.points if point["marker"] is None]
        distance = math.fsum(point["distance"] ** 2 for point in between)
        return math.sqrt(math.fsum(point["residual"] ** 2 for point in between) / distance) if distance else math.nan


def measure_landscape(
    configs: Sequence[RunConfig],
    store: Store,
    *,
    resolution: int = 25,
    samples: int | None = 500,
    mode: Mode = "plane",
    bn: NormStatistics = "keep",
    split: Split = "test",
    checkpoints: int = 20,
) -> dict[str, Any]:
    """Compute the loss of task 1 on a grid for each configuration.

    Args:
        configs: runs of one benchmark, model and seed, which begin at the same weights.
        store: where recordings are kept.
        resolution: points of the grid per side.
        samples: samples whose loss is taken; None for all.
        mode: ``"plane"`` or ``"random"``.
        bn: ``"keep"`` or ``"reestimate"`` running statistics.
        split: the data whose loss is taken.
        checkpoints: checkpoints per task.

    Returns:
        Plain values, one entry of ``methods`` per configuration, with ``problem`` set if it has no
        landscape. All share the axes. ``loss[i][j]`` is at ``(x[j], y[i])``; ``points`` are the
        projected checkpoints with their distance from the plane.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"mode is {' or '.join(get_args(Mode))}, not {mode!r}")
    if resolution < 2:
        raise ValueError(f"a grid has a resolution of at least 2 points a side, not {resolution}")
    check_options(samples, split, bn)
    labels = _check_configs(configs)
    record_all(configs, store, tasks=2, checkpoints=checkpoints)
    entries: list[dict[str, Any]] = []
    ways: dict[str, ProjectedRun] = {}
    for label, config in zip(labels, configs, strict=True):
        recording = record(config, store, tasks=2, checkpoints=checkpoints)
        entry: dict[str, Any] = {"method": config.method, "label": label, "problem": None}
        entries.append(entry)
        try:
            way = ways[label] = project_run(label, recording, mode)
        except ValueError as error:
            entry["problem"] = str(error)
            continue
        markers = [{"x": corner.x, "y": corner.y} for corner in way.corners]
        losses = measure_losses(recording, samples=samples, split=split)
        entry |= {"points": way.points, "residual": way.residual, "losses": losses, "note": recording.note}
        entry["markers"] = dict(zip(STAGES, markers, strict=True))
    if not ways:
        raise ValueError("no landscape: " + "; ".join(f"{entry['label']}: {entry['problem']}" for entry in entries))
    xs, ys = compute_axes([*ways.values()], mode, resolution)
    for entry in entries:
        if entry["label"] in ways:
            way = ways[entry["label"]]
            probe = make_probe(way.recording, 0, samples=samples, split=split, bn=bn, known=1)
            entry["loss"] = compute_grid(way, probe, xs, ys, mode)
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


def project_run(label: str, recording: Recording, mode: Mode = "plane") -> ProjectedRun:
    """Return the plane of a recording of two tasks and its projected checkpoints."""
    if recording.diverged:
        raise ValueError(f"diverged ({recording.diverged})")
    anchors = [recording.start, *recording.solutions[:2]]
    vectors = [recording.weights(point) for point in anchors]
    if mode == "random":
        trainable = [name for name, p in recording.model.named_parameters() if p.requires_grad]
        plane = make_random_plane([anchors[1].state[name] for name in trainable])
    else:
        plane = make_task_plane(vectors[0], vectors[1], vectors[2])
    points = []
    for point in recording.checkpoints:
        marker = next((moment for moment, anchor in zip(STAGES, anchors, strict=True) if anchor is point), None)
        place = asdict(plane.project(recording.weights(point)))
        points.append({"task": point.task + 1, "step": point.step, "marker": marker, **place})
    corners = tuple(plane.project(vector) for vector in vectors)
    return ProjectedRun(label, replace(recording, checkpoints=tuple(anchors)), plane, corners, tuple(points))


def compute_axes(ways: Sequence[ProjectedRun], mode: Mode, resolution: int) -> tuple[list[float], list[float]]:
    """Return a square around all trajectories, or around one filter norm in random directions."""
    if mode == "random":
        side = np.linspace(-1.0, 1.0, resolution).tolist()
        return side, side
    places = np.array([[point["x"], point["y"]] for way in ways for point in way.points])
    low, high = places.min(axis=0), places.max(axis=0)
    middle, half = (low + high) / 2, (0.5 + MARGIN) * float((high - low).max())
    x, y = (np.linspace(centre - half, centre + half, resolution).tolist() for centre in middle)
    return x, y


def compute_grid(
    way: ProjectedRun, probe: LossProbe, xs: Sequence[float], ys: Sequence[float], mode: Mode
) -> list[list[float]]:
    """Return the loss at every point of the grid, one row per y; NaN if it is not finite."""
    anchors = [way.recording.start, *way.recording.solutions[:2]]
    corners = [(corner.x, corner.y) for corner in way.corners]
    kept = way.recording.buffers(anchors[1])
    flat = []
    for x, y in track([(x, y) for y in ys for x in xs], f"{way.label}: {len(xs)} x {len(ys)} losses"):
        buffers = kept
        if mode == "plane" and kept and not probe.refresh:
            buffers = mix_buffers(way.recording, anchors, compute_mixture((x, y), corners))
        loss = probe(way.plane.at(x, y), buffers).loss
        flat.append(loss if math.isfinite(loss) else math.nan)
    return np.array(flat).reshape(len(ys), len(xs)).tolist()


def _check_configs(configs: Sequence[RunConfig]) -> list[str]:
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
