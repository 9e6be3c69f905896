"""Decide which runs are comparable: same benchmark, options, data and test sets.

Everything else in a configuration (method, network, learning rate, epochs) is what is compared. An
order of classes or sessions drawn from a run's own seed belongs to the seed, like its weights: such
runs are replicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from tmln.experiments.identity import canonical
from tmln.experiments.result import Result
from tmln.streams.benchmarks import BENCHMARKS

ORDERS = ("class_order", "session_order")
Key = tuple[str, ...]
ALWAYS_SAID = ("heads",)  # options by which the test itself is easier: titles never leave them out
BY_RUN = "run-seed"  # as tmln.streams has it: each run by its own seed


@dataclass(frozen=True)
class TableEntry:
    """The title of a run's table, and the configuration that tells its row apart there."""

    table: str
    config: Mapping[str, Any]


def assign_tables(results: Sequence[Result]) -> list[TableEntry]:
    """Return each result's place; titles name the benchmark and the options that differ."""
    options = _options(results)
    keys: list[Key] = [(r.benchmark, canonical(mine)) for r, mine in zip(results, options, strict=True)]
    keys = _add_fact(keys, [str(r.stream.get("tests") or "") for r in results])
    keys = _add_fact(keys, [str(len(r.accuracy[0])) if r.accuracy else "" for r in results])
    titles = _titles(keys, options)
    return [
        TableEntry(titles[key], {**r.config, "benchmark": titles[key], "benchmark_options": mine, "method": r.method})
        for r, key, mine in zip(results, keys, options, strict=True)
    ]


def has_own_order(result: Result) -> bool:
    """Return whether the run draws the order of classes or sessions from its own seed."""
    found = _get_options(result)
    return any(found.get(key) == BY_RUN or _find_drawn_seed(found, key) == result.seed for key in ORDERS)


def _get_options(result: Result) -> dict[str, Any]:
    found = result.config.get("benchmark_options")
    return dict(found) if isinstance(found, Mapping) else {}


def _find_drawn_seed(options: Mapping[str, Any], key: str) -> int | None:
    """Return the seed that an order is drawn with, or None."""
    spec = options.get(key)
    number = str(options.get("seed")) if spec == "seeded" else str(spec).partition("seed:")[2]
    return int(number) if number.isdecimal() else None


def _options(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return benchmark options, with orders drawn from the run's own seed marked as such.

    Seed 0 with the order of seed 0 is not marked if seed 1 with that order is beside it: the order
    is then fixed.
    """
    given = [_get_options(result) for result in results]
    raw = [(result.benchmark, canonical(options)) for result, options in zip(results, given, strict=True)]
    seeds: dict[tuple[str, str], set[int]] = {}
    for key, result in zip(raw, results, strict=True):
        seeds.setdefault(key, set()).add(result.seed)
    turned = []
    for key, result, options in zip(raw, results, given, strict=True):
        own = [name for name in ORDERS if _find_drawn_seed(options, name) == result.seed]
        change: dict[str, Any] = {name: BY_RUN for name in own if len(seeds[key]) == 1}
        if any(options[name] == "seeded" for name in change):
            change["seed"] = BY_RUN
        turned.append({**options, **change})
    spread: dict[tuple[str, str], set[int]] = {}
    for result, options in zip(results, turned, strict=True):
        spread.setdefault((result.benchmark, canonical(options)), set()).add(result.seed)
    return [  # of a single seed it is unknown, so it keeps the options that it was given
        new if len(spread[result.benchmark, canonical(new)]) > 1 else old
        for result, new, old in zip(results, turned, given, strict=True)
    ]


def _add_fact(keys: Sequence[Key], facts: Sequence[str]) -> list[Key]:
    """Return the keys with one more fact per run; unknown facts follow the others if they agree."""
    known: dict[Key, set[str]] = {}
    for key, fact in zip(keys, facts, strict=True):
        known.setdefault(key, set()).update([fact] if fact else [])
    return [
        (*key, fact or (next(iter(known[key])) if len(known[key]) == 1 else ""))
        for key, fact in zip(keys, facts, strict=True)
    ]


def _titles(keys: Iterable[Key], options: Iterable[Mapping[str, Any]]) -> dict[Key, str]:
    """Return titles such as ``split-digits, tasks=2``, from the options that differ.

    Where no option differs, the test data or the number of tasks are named.
    """
    kinds: dict[str, dict[Key, Mapping[str, Any]]] = {}
    for key, mine in zip(keys, options, strict=True):
        kinds.setdefault(key[0], {})[key] = mine
    titles: dict[Key, str] = {}
    for benchmark, found in kinds.items():
        names = sorted({name for mine in found.values() for name in mine})
        differs = [n for n in names if n in ALWAYS_SAID or len({canonical(mine.get(n)) for mine in found.values()}) > 1]
        short = _short_paths([mine.get("path") for mine in found.values()])
        for key, mine in found.items():
            notes = [f"{name}={short.get(str(mine[name]), mine[name])}" for name in differs if name in mine]
            alike = [other for other in found if other[1] == key[1]]
            notes += [f"test data {key[2][:6] or 'unknown'}"] if len({other[2] for other in alike}) > 1 else []
            notes += [f"{key[3] or 'unknown'} tasks"] if len({other[3] for other in alike}) > 1 else []
            titles[key] = ", ".join([benchmark, *notes])
        if len(found) > 1:  # the variant without a word of its own has none to be told by
            for key in found:
                if titles[key] == benchmark:
                    titles[key] = f"{benchmark}, {', '.join(_describe_absent(benchmark, name) for name in differs)}"
    return titles


def _describe_absent(benchmark: str, name: str) -> str:
    """Return ``heads=single`` for an option that a configuration leaves out at its default."""
    row = BENCHMARKS.get(benchmark)
    field = None if row is None else row.options.model_fields.get(name)
    usual = None if field is None else field.default
    return f"{name}={str(usual).lower()}" if isinstance(usual, (str, bool)) else f"no {name}"


def _short_paths(paths: Iterable[Any]) -> dict[str, str]:
    """Return folders by as many of their last names as make them differ."""
    given = {str(path) for path in paths if path is not None}
    for length in range(1, 1 + max((len(PurePath(path).parts) for path in given), default=0)):
        short = {path: "/".join(PurePath(path).parts[-length:]) for path in given}
        if len(set(short.values())) == len(given):
            return short
    return {}
