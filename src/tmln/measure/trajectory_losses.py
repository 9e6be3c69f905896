"""The losses of tasks 1 and 2 at the start and after each of them: the numbers at a landscape's markers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tmln.experiments.config import RunConfig
from tmln.experiments.store import Store
from tmln.measure.loss_at import Split, loss_at_task
from tmln.measure.trajectory import Recording, record, record_all

MOMENTS = ("start", "after task 1", "after task 2")


def losses_of(
    recording: Recording, *, samples: int | None = None, split: Split = "test"
) -> dict[str, dict[str, float]]:
    """Task -> moment -> mean loss, as the trained networks have it; of all test samples unless fewer are asked for."""
    anchors = [recording.start, *recording.solutions[:2]]
    if len(anchors) < len(MOMENTS):
        raise ValueError(f"the run has not learned two tasks: {recording.diverged or 'record more of it'}")
    found: dict[str, dict[str, float]] = {}
    for task in (0, 1):
        probe = loss_at_task(recording, task, samples=samples, split=split, known=1)
        losses = [probe(recording.weights(point), recording.buffers(point)).loss for point in anchors]
        found[f"task {task + 1}"] = dict(zip(MOMENTS, losses, strict=True))
    return found


def trajectory_losses(
    configs: Sequence[RunConfig],
    store: Store,
    *,
    samples: int | None = None,
    split: Split = "test",
    checkpoints: int = 20,
) -> list[dict[str, Any]]:
    """A row for each configuration: ``losses`` as :func:`losses_of` gives them, or None and why in ``problem``.

    Recordings are shared with :func:`tmln.measure.landscape.landscape` if ``checkpoints`` are the same.
    """
    record_all(configs, store, tasks=2, checkpoints=checkpoints)
    rows = []
    for config in configs:
        recording = record(config, store, tasks=2, checkpoints=checkpoints)
        row: dict[str, Any] = {"method": config.method, "seed": config.seed, "losses": None}
        row["problem"] = f"diverged ({recording.diverged})" if recording.diverged else None
        if not recording.diverged:
            row["losses"] = losses_of(recording, samples=samples, split=split)
        rows.append(row)
    return rows
