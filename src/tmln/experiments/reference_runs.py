"""Reference runs: those of intransigence, and plain SGD at a matched rate.

The reference of intransigence is an ordinary run, found in the store or computed once for all
methods. One rule holds for every table, page and figure: it is run at the benchmark's own learning
rate with its recipe's own settings, on the same data, model, epochs and batch size, under the same
seed.
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

# Settings that a run shares with its reference: data, model and scoring. Not lr, which is a
# method's own: a run at ten times the rate is compared with the same network as all others.
# ``compile`` changes only the rounding, and ``train_accuracy`` what is measured: with them one
# joint run serves as row and as reference.
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
    """Return the run whose accuracies are the reference of this one; None if it has none.

    ``prefix`` is ``joint``: trained from scratch on tasks 1..k for every k. ``independent`` is
    trained from scratch on task k alone. ``final`` is a shortcut, one model on all tasks together.
    """
    if oracle == "none" or config.method in REFERENCES or config.merged:
        return None
    shared: dict[str, Any] = {key: getattr(config, key) for key in SHARED}
    if oracle == "final":
        return RunConfig.of({**shared, "method": "naive", "merged": True})
    (method,) = (name for name, kind in REFERENCES.items() if kind == oracle)
    return RunConfig.of({**shared, "method": method})


def reference_of(store: Store, config: RunConfig, oracle: Oracle) -> Sequence[float] | None:
    """Return a*_k for every task, if the reference run has finished."""
    wanted = reference_config(config, oracle)
    result = None if wanted is None else store.find_result(wanted)
    return None if result is None or result.diverged else result.as_reference(oracle)


def reference_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the run name of each kind of reference of a resolved configuration."""
    if not config.keys() <= RunConfig.model_fields.keys():
        raise ValueError("the configuration is of another version")
    if config.get("method") in REFERENCES or config.get("merged"):
        return {}
    return _names(canonical({key: config[key] for key in SHARED if key in config}))


@lru_cache(maxsize=4096)
def _names(shared: str) -> dict[str, str]:
    """Return the names for runs that share these settings.

    Thousands of runs have a few references.
    """
    config = RunConfig.of(json.loads(shared))
    wanted = {oracle: reference_config(config, oracle) for oracle in ORACLES}
    return {oracle: run_id(found) for oracle, found in wanted.items() if found is not None}


def with_names(result: Result) -> Result:
    """Return a result of an earlier version with the names of its references, where they are known.

    Such a result may not name its reference. It was a run at the run's own rate, which is the one
    that counts if that rate is the benchmark's own.
    """
    with suppress(TypeError, ValueError):
        names = reference_names(result.config)
        own = find_benchmark(result.benchmark).lr
        named = result.reference or (names.get(result.oracle, "") if result.config.get("lr", own) == own else "")
        return replace(result, name=run_id(RunConfig.of(result.config)), references=names, reference=named)
    return result


def equal_rate(tmln: RunConfig) -> dict[str, Any]:
    """Return the settings of plain SGD at the effective rate of a TMLN run, eta/lambda.

    In task 1, before there is a metric, both take the same steps.

    >>> equal_rate(RunConfig(benchmark="split-digits", method="tmln"))
    {'lr': 0.1, 'step.momentum': 0.0}
    """
    full = tmln.resolved()
    rate = float(f"{full['lr'] / full['settings']['step.damping']:.12g}")  # 0.1, not 0.09999999999999999
    return {"lr": rate, "step.momentum": 0.0}
