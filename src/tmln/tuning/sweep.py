"""List the runs of a sweep: grids or random draws over any settings, times methods, times seeds."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tmln.experiments.config import RunConfig, run_id
from tmln.seeds import seed_of
from tmln.tuning.space import (
    EFFECTIVE_LR,
    EFFECTIVE_RANGE,
    Space,
    apply_point,
    declared_spaces,
    find_declared,
    read_space,
    read_values,
)

LIMIT = 100_000  # runs; more is likely a typing error


@dataclass(frozen=True)
class Sweep:
    """Every run once, and notes for the user."""

    configs: list[RunConfig]
    notes: list[str]


def sweep(
    bases: Sequence[RunConfig],
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    draws: int = 0,
    space: Mapping[str, str | None] | None = None,
    seeds: int = 1,
) -> Sweep:
    """Return each base with every combination of the grid, draws of the space, and seeds.

    A run whose components lack a setting goes without it, which is noted; a setting that no run has
    is an error. Draw number i does not depend on the number of draws: more draws add to old ones.

    >>> base = RunConfig(benchmark="split-digits", method="tmln")
    >>> len(sweep([base], {"step.trajectory": [0.1, 1, 10]}, seeds=2).configs)
    6
    """
    grid = grid or {}
    for key, values in grid.items():
        if not values:
            raise ValueError(f"the grid of {key} has no values; write --grid {key}=V1,V2")
    if draws < 0 or seeds < 1:
        raise ValueError(f"a sweep has no fewer than 0 draws and 1 seed, not {draws} and {seeds}")
    size = math.prod(map(len, grid.values())) * max(draws, 1) * seeds * len(bases)
    if size > LIMIT:
        raise ValueError(f"that would be {size} runs, more than {LIMIT}; narrow the grid or draw at random (--random)")
    given = space or {}
    lacking: dict[str, dict[str, RunConfig]] = {key: {} for key in (*grid, *given)}
    used: set[str] = set()
    found: dict[str, RunConfig] = {}
    for base in bases:
        for values in itertools.product(*grid.values()):
            changes = dict(zip(grid, values, strict=True))
            config = base.with_settings({key: value for key, value in changes.items() if "." not in key})
            missing = {key: lack for key in lacking if (lack := config.lacks(key))}
            for key, lack in missing.items():
                lacking[key][lack] = config
            used |= lacking.keys() - missing.keys()
            config = config.with_settings({k: v for k, v in changes.items() if "." in k and k not in missing})
            mine = {key: text for key, text in given.items() if key not in missing}
            for point in draw(config, draws, mine) if draws and (mine or not given) else [config]:
                for number in range(seeds):
                    run = point.with_setting("seed", point.seed + number)
                    found.setdefault(run_id(run), run)
    for key in lacking:
        if key not in used:
            next(iter(lacking[key].values())).with_setting(key, 0)  # raises the error
    return Sweep(list(found.values()), [f"{lack}: run without it" for lacks in lacking.values() for lack in lacks])


def read_grid(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Read ``step.trajectory=0.1,1,10``; a setting that is given twice has the values of both."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = (part.strip() for part in text.partition("="))
        if not (key and equals):
            raise ValueError(f"--grid takes KEY=V1,V2, e.g. step.trajectory=0.1,1,10; got {text!r}")
        try:
            grid.setdefault(key, []).extend(read_values(values))
        except ValueError:
            raise ValueError(f"the grid of {key} is empty; write --grid {key}=V1,V2") from None
    return grid


def read_spaces(texts: Iterable[str]) -> dict[str, str | None]:
    """Read ``step.damping=1e-4..10``, or ``step.damping`` for the space that is declared."""
    found: dict[str, str | None] = {}
    for text in texts:
        key, equals, space = (part.strip() for part in text.partition("="))
        if not key or (equals and not space):
            raise ValueError(f"--space takes KEY=LOW..HIGH or KEY=V1,V2, e.g. step.damping=1e-4..10; got {text!r}")
        found[key] = space if equals else None
    return found


def spaces_of(config: RunConfig, given: Mapping[str, str | None] | None) -> dict[str, Space]:
    """Return the space of each setting that is searched.

    Without any given, these are the effective learning rate and all numbers that components
    declare, except for those that the configuration sets itself.
    """
    if not given:
        found = {key: space for key, space in declared_spaces(config).items() if key not in config.settings}
        found = {**({EFFECTIVE_LR: EFFECTIVE_RANGE} if config.lr is None else {}), **found}
        if not found:
            raise ValueError(
                f"lr is set, and no component of {config.method!r} declares a number to search; leave lr out"
            )
        return found
    named = find_declared(config, [key for key, text in given.items() if text is None])
    for key, text in given.items():
        if text is not None:
            try:
                named[key] = read_space(text, config, key)
            except ValueError as error:
                raise ValueError(f"--space {key}={text}: {error}") from None
    return {key: named[key] for key in given}


def spaces_for(bases: Sequence[RunConfig], given: Mapping[str, str | None]) -> tuple[list[dict[str, Space]], list[str]]:
    """Return the spaces of several methods, each without settings that it lacks, and notes."""
    found, notes = [], []
    for key in given:
        if all(base.lacks(key) for base in bases):
            spaces_of(bases[0], {key: given[key]})  # raises the error
    for base in bases:
        lacks = {key: lack for key in given if (lack := base.lacks(key))}
        notes += [f"{base.method}: {lack}, searched without it" for lack in lacks.values()]
        mine = {key: text for key, text in given.items() if key not in lacks}
        if given and not mine:
            raise ValueError(
                f"{base.method!r} has none of {', '.join(given)} to search; add --space effective_lr, which all have"
            )
        found.append(spaces_of(base, mine))
    return found, notes


def draw(config: RunConfig, draws: int, given: Mapping[str, str | None] | None = None) -> list[RunConfig]:
    """Draw points of the space, each setting from a random generator of its own."""
    spaces = spaces_of(config, given)
    generators = {key: random.Random(seed_of(config.seed, f"draw {key}")) for key in spaces}
    return [
        apply_point(config, {key: space.at(generators[key].random()) for key, space in spaces.items()})
        for _ in range(draws)
    ]
