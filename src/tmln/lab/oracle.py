"""The reference of intransigence: an ordinary run, found in the store or computed once for all methods.

One rule for every table, page and picture: the reference is run at the benchmark's own learning rate with its recipe's
own settings, on the same data, model, epochs and batch size, under the same seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal

from tmln import metrics
from tmln.lab.config import RunConfig, canonical, run_id
from tmln.lab.defaults import defaults_of
from tmln.lab.store import Store
from tmln.recipes import RECIPES

Oracle = Literal["prefix", "final", "independent", "none"]
ORACLES: tuple[Oracle, ...] = (
    "prefix",
    "final",
    "independent",
)  # the first that is there is taken, unless one is named
# Methods that see more, or fewer, data than those they are held against, and what they are the reference of.
KINDS: dict[str, Oracle] = {
    **{name: "prefix" for name, recipe in RECIPES.items() if recipe.joint},
    **{name: "independent" for name, recipe in RECIPES.items() if recipe.independent},
}
REFERENCES = tuple(KINDS)
INTRANSIGENCE = ("int", "int_all", "int_last")
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
    if oracle == "none" or config.method in KINDS or config.merged:
        return None
    shared: dict[str, Any] = {key: getattr(config, key) for key in SHARED}
    if oracle == "final":
        return RunConfig.of({**shared, "method": "naive", "merged": True})
    (method,) = (name for name, kind in KINDS.items() if kind == oracle)
    return RunConfig.of({**shared, "method": method})


def reference_of(store: Store, config: RunConfig, oracle: Oracle) -> list[float] | None:
    """a*_k for every task, if the reference run has finished."""
    wanted = reference_config(config, oracle)
    run = None if wanted is None else store.find(wanted)
    return _reference(None if run is None else run.result, oracle)


def _reference(result: Mapping[str, Any] | None, oracle: Oracle) -> list[float] | None:
    if result is None or result.get("diverged"):
        return None
    matrix = result["accuracy"]
    return list(matrix[-1]) if oracle == "final" else [row[k] for k, row in enumerate(matrix)]


def with_references(results: Iterable[dict[str, Any]], oracle: Oracle | None = None) -> list[dict[str, Any]]:
    """The results, with intransigence also where the reference was finished after the run.

    ``prefix`` is preferred to ``final``, and that to ``independent``; ``oracle`` asks for one and no other.
    """
    given = list(results)
    ids: dict[str, dict[str, Any]] = {}
    kinds = {result.get("oracle") for result in given}
    for result in given:
        kind = _kind(result)
        if kind is not None:
            with suppress(ValueError):  # of another version
                ids[run_id(RunConfig.of(result["config"]))] = result
                kinds.add(kind)
    wanted = [name for name in ORACLES if name in kinds] if oracle is None else [oracle]
    return [with_reference(result, lambda name, config: ids.get(name), wanted) for result in given]


def with_reference(
    result: dict[str, Any], find: Callable[[str, RunConfig], Mapping[str, Any] | None], oracles: Sequence[Oracle]
) -> dict[str, Any]:
    """The result with intransigence against the first of these references that ``find`` has, by name and configuration.

    What it says itself counts where it is against that reference; against any other it is left out.
    """
    config = result["config"]
    if result.get("diverged") or _kind(result) or not config.keys() <= RunConfig.model_fields.keys():
        return result
    shared = canonical({key: config[key] for key in SHARED if key in config})
    for oracle in oracles:
        try:
            wanted = _wanted(shared, oracle)
        except ValueError:  # of another version
            return result
        if wanted is None:
            continue
        reference = _reference(find(*wanted), oracle)
        if reference is not None and len(reference) == len(result["accuracy"]):
            found = metrics.summary(result["accuracy"], reference)
            against = {name: found[name] for name in INTRANSIGENCE}
            return {**result, "metrics": {**result["metrics"], **against}, "oracle": oracle}
        if result.get("oracle") == oracle and _against(result, wanted[0]):
            return result
    kept = {name: value for name, value in result["metrics"].items() if name not in INTRANSIGENCE}
    return result if len(kept) == len(result["metrics"]) else {**result, "metrics": kept, "oracle": "none"}


@lru_cache(maxsize=4096)
def _wanted(shared: str, oracle: Oracle) -> tuple[str, RunConfig] | None:
    """Name and configuration of the reference of runs that share this; thousands of runs have a few references."""
    config = reference_config(RunConfig.of(json.loads(shared)), oracle)
    return None if config is None else (run_id(config), config)


def _against(result: Mapping[str, Any], wanted: str) -> bool:
    """Whether the run was held against this reference; those that do not name theirs took one at their own rate."""
    config = result["config"]
    own = defaults_of(config["benchmark"]).lr
    return bool(result["reference"] == wanted) if result.get("reference") else config.get("lr", own) == own


def _kind(result: Mapping[str, Any]) -> Oracle | None:
    """Which reference this run is, if it is one."""
    if result["config"].get("merged"):
        return "final"
    return KINDS.get(str(result["method"]))
