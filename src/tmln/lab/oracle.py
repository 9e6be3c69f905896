"""The reference of intransigence: an ordinary run of ``joint``, found in the store or computed once for all methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from tmln import metrics
from tmln.lab.config import RunConfig, run_id
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
    return _reference(None if run is None else run.result, oracle)


def _reference(result: Mapping[str, Any] | None, oracle: Oracle) -> list[float] | None:
    if result is None or result.get("diverged"):
        return None
    matrix = result["accuracy"]
    return [row[k] for k, row in enumerate(matrix)] if oracle == "prefix" else list(matrix[-1])


def with_references(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results, with intransigence also where the reference was finished after the run; ``prefix`` is preferred."""
    given = list(results)
    ids: dict[str, dict[str, Any]] = {}
    for result in given:
        if result["method"] == "joint" or result["config"].get("merged"):
            config = _config(result)
            ids |= {} if config is None else {run_id(config): result}
    return [_with_reference(result, ids) for result in given] if ids else given


def _with_reference(result: dict[str, Any], ids: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    config = None if result.get("oracle") == "prefix" or result.get("diverged") else _config(result)
    if config is None:
        return result
    oracles: tuple[Oracle, ...] = ("prefix",) if result.get("oracle") == "final" else ("prefix", "final")
    for oracle in oracles:
        wanted = reference_config(config, oracle)
        reference = None if wanted is None else _reference(ids.get(run_id(wanted)), oracle)
        if reference is not None and len(reference) == len(result["accuracy"]):
            found = metrics.summary(result["accuracy"], reference)
            return {**result, "metrics": {**result["metrics"], **found}, "oracle": oracle}
    return result


def _config(result: Mapping[str, Any]) -> RunConfig | None:
    try:
        return RunConfig.of(result["config"])
    except ValueError:  # of another version
        return None
