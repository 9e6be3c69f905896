"""How a comparison of tuned methods is made fair: one budget for all, a choice on validation data, fresh seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tmln.experiments.config import RunConfig, run_id
from tmln.tuning.space import Space
from tmln.tuning.tune import Trial

VALIDATION = "validation"  # the option of every benchmark that sets data aside to choose by
SHARE = 0.1  # of the training data, where nothing else is said


@dataclass(frozen=True)
class Tuned:
    """The search of one method: where it looked, all that it tried, and what it chose, if anything counted."""

    base: RunConfig
    spaces: Mapping[str, Space]
    trials: Sequence[Trial]
    chosen: Trial | None


def with_split(config: RunConfig) -> RunConfig:
    """With data to choose by, unless the configuration says how much of them itself."""
    if VALIDATION in config.benchmark_options:
        return config
    return config.with_setting(f"benchmark.{VALIDATION}", SHARE)


def has_split(config: RunConfig) -> bool:
    return VALIDATION in config.resolved()["benchmark_options"]


def looks_at_tests(objectives: Sequence[str]) -> bool:
    """Whether some objective is not of the validation split."""
    return not all(name.startswith("val_") for name in objectives)


def how_chosen(objectives: Sequence[str], trials: int) -> str:
    """In words, for whoever reads what was chosen."""
    data = "the test" if looks_at_tests(objectives) else "validation"
    return f"chosen on {data} data from {trials} trial{'s' * (trials != 1)}"


def fresh_seeds(first: int, tuned: int, count: int) -> range:
    """``count`` seeds, none of them among the ``tuned`` ones from ``first`` on."""
    return range(first + tuned, first + tuned + count)


def final_configs(tuned: Tuned, stage: RunConfig, seeds: Sequence[int]) -> list[RunConfig]:
    """What was chosen, as it is run for the table: on the stage's benchmark, once for each seed."""
    if tuned.chosen is None:
        return []
    config = stage.with_settings(tuned.chosen.params)
    return [config.with_setting("seed", seed) for seed in seeds]


def without_split(config: RunConfig) -> RunConfig:
    """With the data to choose by given back to training: for what is run when all is chosen."""
    return config.with_setting(f"benchmark.{VALIDATION}", 0.0)


def record(
    searches: Sequence[Tuned], objectives: Sequence[str], seeds: Sequence[int], finals: Sequence[RunConfig]
) -> dict[str, Any]:
    """The whole search, for a file beside the runs: every trial with its runs, what was chosen, what was run then."""
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
