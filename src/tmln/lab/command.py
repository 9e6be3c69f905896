"""The command that makes a run again: only what differs from the defaults is spelled out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from itertools import count, groupby
from typing import Any

import yaml

from tmln.families import FAMILIES
from tmln.lab.config import RunConfig, canonical
from tmln.lab.values import read_value


def command_of(config: RunConfig, seeds: int = 1) -> str:
    """``tmln run`` with words that a POSIX shell takes as they are; ``seeds`` runs from the configuration's seed on.

    >>> command_of(RunConfig(benchmark="split-digits", method="er", settings={"replay.capacity": 50}), seeds=3)
    'tmln run --benchmark split-digits --method er --seeds 3 --set replay.capacity=50'
    """
    full = config.resolved()
    path = full["benchmark_options"].get("path")
    benchmark = full["benchmark"] if path is None else f"{full['benchmark']}:{path}"
    words = ["tmln", "run", "--benchmark", benchmark, "--method", full["method"], "--seeds", str(seeds)]
    for key, value in _changes(full, benchmark):
        if key == "epochs":
            words += ["--epochs", str(value)]
        elif key == "compile":
            words += ["--compile"]
        else:
            words += ["--set", f"{key}={_written(value)}"]
    return shlex.join(words)


def commands_of(config: RunConfig, seeds: Iterable[int]) -> list[str]:
    """One command for each stretch of consecutive seeds."""
    number = count()
    stretches = [list(group) for _, group in groupby(sorted(set(seeds)), key=lambda seed: seed - next(number))]
    return [command_of(config.with_setting("seed", seeds[0]), len(seeds)) for seeds in stretches]


def _changes(full: dict[str, Any], benchmark: str) -> Iterator[tuple[str, Any]]:
    """Model and parts first: what they are decides the defaults of the rest."""
    base = RunConfig(benchmark=benchmark, method=full["method"])
    for key in ("model", *FAMILIES):
        if full[key] != base.resolved()[key]:
            yield key, full[key]
            base = base.with_setting(key, full[key])
    default = base.resolved()
    for key in sorted(full):
        inner = {"benchmark_options": "benchmark.", "model_options": "model.", "settings": ""}.get(key)
        if inner is None:
            pairs = [(key, full[key], default.get(key))]
        else:
            pairs = [(f"{inner}{name}", value, default[key].get(name)) for name, value in full[key].items()]
        yield from ((name, value) for name, value, usual in pairs if canonical(value) != canonical(usual))


def _written(value: Any) -> str:
    """Text that :func:`tmln.lab.values.read_value` reads as this value."""
    if isinstance(value, str):
        return value if read_value(value) == value else json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return repr(value)
    return yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9).strip()
