"""The ``tmln run`` command of a configuration, with only what differs from the defaults.

Needs no torch. Which settings those are (:func:`changed_of`) a result says itself; their values are
in its configuration.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby
from typing import TYPE_CHECKING, Any

from tmln.experiments.identity import canonical
from tmln.methods.registry import FAMILIES
from tmln.methods.registry import INNER as INNER_COMPONENT
from tmln.streams.options import is_own_code
from tmln.user_code import is_code

if TYPE_CHECKING:
    from tmln.experiments.config import RunConfig

CODE = ("model", *FAMILIES)  # settings that may name a class of the user's
INNER = {"benchmark_options": "benchmark.", "model_options": "model.", "settings": ""}


def command_of(config: RunConfig, seeds: int = 1) -> str:
    """Return the ``tmln run`` command of a configuration, quoted for a POSIX shell.

    Args:
        config: The configuration; only what differs from the defaults is in the command.
        seeds: Runs from the configuration's seed on.

    >>> from tmln.experiments.config import RunConfig
    >>> config = RunConfig(benchmark="split-digits", method="er", settings={"replay.capacity": 50})
    >>> command_of(config, seeds=3)
    'tmln run --benchmark split-digits --method er --seeds 3 --set replay.capacity=50'
    """
    (command,) = commands_of(config.resolved(), changed_of(config), range(config.seed, config.seed + seeds))
    return command


def commands_of(full: Mapping[str, Any], changed: Sequence[str], seeds: Iterable[int]) -> list[str]:
    """Return a command for each stretch of consecutive seeds of a resolved configuration."""
    number = count()
    stretches = [list(group) for _, group in groupby(sorted(set(seeds)), key=lambda seed: seed - next(number))]
    return [_command(full, changed, stretch) for stretch in stretches]


def changed_of(config: RunConfig) -> list[str]:
    """Return the settings, except the seed, that differ from the benchmark's and method's defaults.

    Model and components come first: they decide the defaults of the rest.
    """
    from tmln.experiments.config import RunConfig

    full, found = config.resolved(), []
    base = RunConfig(benchmark=_benchmark(full), method=full["method"])
    if fingerprint := full["benchmark_options"].get("fingerprint"):  # whose data are not read again
        base = base.model_copy(update={"benchmark_options": {"fingerprint": fingerprint}})
    for key in ("model", *FAMILIES):
        if full.get(key) != base.resolved().get(key):
            found.append(key)
            base = base.with_setting(key, full[key])
    default = dict(_flat(base.resolved()))
    return found + [
        key for key, value in _flat(full) if key != "seed" and canonical(value) != canonical(default.get(key))
    ]


def _command(full: Mapping[str, Any], changed: Sequence[str], seeds: Sequence[int]) -> str:
    words = ["tmln", "run", "--benchmark", _benchmark(full), "--method", full["method"], "--seeds", str(len(seeds))]
    values = dict(_flat(full))
    for key, value in (*((key, values[key]) for key in changed), *([("seed", seeds[0])] if seeds[0] else [])):
        if key == "epochs":
            words += ["--epochs", str(value)]
        elif key == "compile":
            words += ["--compile"]
        elif key == "name":
            words += ["--name", str(value)]
        else:
            words += ["--set", f"{key}={_spell_value(value)}"]
    if any(_names_code(key, value) for key, value in values.items()):
        words += ["--allow-code"]
    return shlex.join(words)


def _names_code(key: str, value: Any) -> bool:
    """Return whether a setting names a class of the user's; ``timm:NAME`` is a model of timm's."""
    if key == "benchmark.path" and isinstance(value, str) and is_own_code(value):
        return True
    if not isinstance(value, str) or not (key in CODE or key.endswith(f".{INNER_COMPONENT}")):
        return False
    return is_code(value.removeprefix("timm:") if key == "model" else value)


def _benchmark(full: Mapping[str, Any]) -> str:
    path = full["benchmark_options"].get("path")
    return str(full["benchmark"] if path is None else f"{full['benchmark']}:{path}")


def _flat(full: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield settings as ``--set`` has them: ``epochs``, ``benchmark.tasks``, ``step.damping``."""
    for key in sorted(full):
        if key in INNER:
            yield from ((f"{INNER[key]}{name}", value) for name, value in full[key].items())
        else:
            yield key, full[key]


def _spell_value(value: Any) -> str:
    """Return text that :func:`tmln.experiments.yaml_reader.read_value` reads as this value."""
    if isinstance(value, str):
        from tmln.experiments.yaml_reader import read_value  # most values are numbers: a report of them needs no YAML

        return value if read_value(value) == value else json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return repr(value)
    import yaml

    return yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9).strip()
