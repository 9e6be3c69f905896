"""The reference of intransigence: an ordinary run of ``joint``, found in the store or computed once for all methods."""

from __future__ import annotations

from typing import Any, Literal

from tmln.lab.config import RunConfig
from tmln.lab.store import Store

Oracle = Literal["prefix", "final", "none"]
SHARED = (
    "benchmark",
    "benchmark_options",
    "model",
    "model_options",
    "epochs",
    "batch_size",
    "lr",
    "seed",
    "logit_mask",
    "compile",
)


def reference_config(config: RunConfig, oracle: Oracle) -> RunConfig | None:
    """The run whose accuracies are the reference of this one; None if there is none to be had.

    ``prefix`` is ``joint``: afresh on tasks 1..k for every k. ``final`` is a shortcut, one model on all tasks together.
    """
    if oracle == "none" or config.method == "joint" or config.merged:
        return None
    shared: dict[str, Any] = {key: getattr(config, key) for key in SHARED}
    if oracle == "prefix":
        return RunConfig.of({**shared, "method": "joint"})
    return RunConfig.of({**shared, "method": "naive", "merged": True})


def reference_of(store: Store, config: RunConfig, oracle: Oracle) -> list[float] | None:
    """a*_k for every task, if the reference run has finished."""
    wanted = reference_config(config, oracle)
    run = None if wanted is None else store.find(wanted)
    result = None if run is None else run.result
    if result is None or result.get("diverged"):
        return None
    matrix = result["accuracy"]
    return [row[k] for k, row in enumerate(matrix)] if oracle == "prefix" else list(matrix[-1])
