"""Compare tuned methods fairly: one budget for all, a choice on validation data, fresh seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tmln.experiments.config import RunConfig, run_id
from tmln.tuning.search import Trial
from tmln.tuning.space import Space, apply_point

VALIDATION = "validation"  # the option of every benchmark that holds out validation data
SHARE = 0.1  # of the training data, by default


@dataclass(frozen=True)
class Tuned:
    """The search of one method: its spaces, its trials, and the best one, if any has values."""

    base: RunConfig
    spaces: Mapping[str, Space]
    trials: Sequence[Trial]
    chosen: Trial | None


def with_split(config: RunConfig) -> RunConfig:
    """Return the configuration with a validation split, unless it sets one itself."""
    if VALIDATION in config.benchmark_options:
        return config
    return config.with_setting(f"benchmark.{VALIDATION}", SHARE)


def has_split(config: RunConfig) -> bool:
    """Return whether a validation split is held out."""
    return VALIDATION in config.resolved()["benchmark_options"]


def uses_test_data(objectives: Sequence[str]) -> bool:
    """Return whether an objective is not of the validation split."""
    return not all(name.startswith("val_") for name in objectives)


def how_chosen(objectives: Sequence[str], trials: int) -> str:
    """Describe on which data, and from how many trials, settings were chosen."""
    data = "the test" if uses_test_data(objectives) else "validation"
    return f"chosen on {data} data from {trials} trial{'s' * (trials != 1)}"


def describe_effort(searches: Sequence[Tuned]) -> list[str]:
    """Return lines on trials and searched settings of each method, and whether they are equal."""
    trials = {len(tuned.trials) for tuned in searches}
    settings = {len(tuned.spaces) for tuned in searches}
    listed = "; ".join(
        f"{tuned.base.name or tuned.base.method}: {len(tuned.trials)} trial{'s' * (len(tuned.trials) != 1)} over "
        f"{len(tuned.spaces)} setting{'s' * (len(tuned.spaces) != 1)} ({', '.join(tuned.spaces)})"
        for tuned in searches
    )
    if len(searches) < 2:
        return [f"searched: {listed}"]
    equal = [
        f"{'equal' if len(found) == 1 else 'unequal'} numbers of {what}"
        for what, found in (("trials", trials), ("searched settings", settings))
    ]
    hint = "" if len(settings) == 1 else "; --space names those to search, the same for all"
    return [f"{' and '.join(equal)}{hint}", f"searched: {listed}"]


def fresh_seeds(first: int, tuned: int, count: int) -> range:
    """Return ``count`` seeds that follow the ``tuned`` ones, which begin at ``first``."""
    return range(first + tuned, first + tuned + count)


def final_configs(tuned: Tuned, stage: RunConfig, seeds: Sequence[int]) -> list[RunConfig]:
    """Return the runs with the chosen settings on the benchmark of ``stage``, one for each seed."""
    if tuned.chosen is None:
        return []
    config = apply_point(stage, tuned.chosen.params)
    return [config.with_setting("seed", seed) for seed in seeds]


def without_split(config: RunConfig) -> RunConfig:
    """Return the configuration that trains on the validation data, too, once all is chosen."""
    return config.with_setting(f"benchmark.{VALIDATION}", 0.0)


def describe_searches(
    searches: Sequence[Tuned], objectives: Sequence[str], seeds: Sequence[int], finals: Sequence[RunConfig]
) -> dict[str, Any]:
    """Return the searches as JSON: every trial with its runs, the chosen ones, the final runs."""
    return {
        "format": 1,
        "objectives": list(objectives),
        "seeds": list(seeds),
        "methods": [
            {
                "method": tuned.base.method,
                "config": tuned.base.resolved(),
                "spaces": {key: str(space) for key, space in tuned.spaces.items()},
                "trials": [_trial(trial, seeds) for trial in tuned.trials],
                "chosen": None if tuned.chosen is None else tuned.chosen.number,
                "params": None if tuned.chosen is None else tuned.chosen.params,
                "lr": None if tuned.chosen is None else tuned.chosen.config.resolved()["lr"],
            }
            for tuned in searches
        ],
        "final_runs": [run_id(config) for config in finals],
        "final_runs_keep_the_split": any(map(has_split, finals)),
    }


def _trial(trial: Trial, seeds: Sequence[int]) -> dict[str, Any]:
    return {
        "number": trial.number,
        "params": trial.params,
        "values": trial.values,
        "why": trial.why,
        "runs": [run_id(trial.config.with_setting("seed", seed)) for seed in seeds],
    }
