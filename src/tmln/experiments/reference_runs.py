"""The reference of intransigence: an ordinary run, found in the store or computed once for all methods.

One rule for every table, page and picture: the reference is run at the benchmark's own learning rate with its recipe's
own settings, on the same data, model, epochs and batch size, under the same seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tmln.experiments.config import RunConfig, canonical, run_id
from tmln.experiments.result import ORACLES, REFERENCES, Oracle, Result
from tmln.experiments.store import Store
from tmln.streams.benchmarks import find_benchmark

# What a run hands on to its reference: what it learns with what, and how that is scored. Not lr, which is a method's
# own: a run at ten times the rate is held against the same network as all others. ``compile`` changes the rounding
# only, and ``train_accuracy`` what is measured: with them one joint run serves as row and as reference.
SHARED = (
    "benchmark",
    "benchmark_options",
    "model",
    "model_options",
    "epochs",
    "batch_size",
    "seed",
    "logit_mask",
    "compile",
    "train_accuracy",
)


def reference_config(config: RunConfig, oracle: Oracle) -> RunConfig | None:
    """The run whose accuracies are the reference of this one; None if there is none to be had.

    ``prefix`` is ``joint``: afresh on tasks 1..k for every k. ``independent`` is afresh on task k alone. ``final`` is a
    shortcut, one model on all tasks together.
    """
    if oracle == "none" or config.method in REFERENCES or config.merged:
        return None
    shared: dict[str, Any] = {key: getattr(config, key) for key in SHARED}
    if oracle == "final":
        return RunConfig.of({**shared, "method": "naive", "merged": True})
    (method,) = (name for name, kind in REFERENCES.items() if kind == oracle)
    return RunConfig.of({**shared, "method": method})


def reference_of(store: Store, config: RunConfig, oracle: Oracle) -> Sequence[float] | None:
    """a*_k for every task, if the reference run has finished."""
    wanted = reference_config(config, oracle)
    run = None if wanted is None else store.find(wanted)
    result = None if run is None else run.result
    return None if result is None or result.diverged else result.as_reference(oracle)


def reference_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Which run each kind of reference of a resolved configuration is: all that a reader needs to find it."""
    if not config.keys() <= RunConfig.model_fields.keys():
        raise ValueError("the configuration is of another version")
    if config.get("method") in REFERENCES or config.get("merged"):
        return {}
    return _names(canonical({key: config[key] for key in SHARED if key in config}))


@lru_cache(maxsize=4096)
def _names(shared: str) -> dict[str, str]:
    """Of runs that share this; thousands of runs have a few references."""
    config = RunConfig.of(json.loads(shared))
    wanted = {oracle: reference_config(config, oracle) for oracle in ORACLES}
    return {oracle: run_id(found) for oracle, found in wanted.items() if found is not None}


def with_names(result: Result) -> Result:
    """A result of an earlier version, with the names of its references; one of which nothing is known has none.

    Such a result may not name what it was held against. It was a reference at the run's own rate, which is the one that
    counts where that rate is the benchmark's own.
    """
    with suppress(TypeError, ValueError):
        names = reference_names(result.config)
        own = find_benchmark(result.benchmark).lr
        named = result.reference or (names.get(result.oracle, "") if result.config.get("lr", own) == own else "")
        return replace(result, name=run_id(RunConfig.of(result.config)), references=names, reference=named)
    return result
