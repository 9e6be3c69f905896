"""Where a setting is looked for: a range or some values, declared by each part or written on a command line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tmln.experiments.config import RunConfig
from tmln.experiments.yaml_reader import NUMBER, read_value
from tmln.methods.registry import FAMILIES
from tmln.suggest import did_you_mean

DECADE = 10.0  # ranges at least this wide are searched on a logarithmic scale unless they say otherwise
DIGITS = 4  # of a drawn number: enough to search by, few enough to read


@dataclass(frozen=True)
class Range:
    """From ``low`` to ``high``, both included; ``log`` is evenly in the logarithm, ``whole`` is in whole numbers."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"a range goes from a number to a larger one, not {self.low:g}..{self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range begins above 0, not at {self.low:g}")

    def at(self, share: float) -> float | int:
        """The number at a share between 0 and 1 of the way, rounded."""
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        return self.rounded(value)

    def rounded(self, value: float) -> float | int:
        """To a few digits, or to a whole number, within the range."""
        if self.whole:
            return min(max(round(value), math.ceil(self.low)), math.floor(self.high))
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{' (log)' if self.log else ''}"


@dataclass(frozen=True)
class Choices:
    """One of these."""

    values: tuple[Any, ...]

    def at(self, share: float) -> Any:
        """``Choices((1, 2, 4)).at(0.5)`` is 2: equal shares of [0, 1)."""
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]

    def __str__(self) -> str:
        return ",".join(map(str, self.values))


Space = Range | Choices


LR = Range(0.0003, 0.3, log=True)  # of every method on every benchmark


def read_space(text: str, config: RunConfig, key: str) -> Space:
    """``1e-4..10`` (logarithmic from a factor of ten on), ``0..1:linear``, ``1..8:log``, or values: ``32,64,128``.

    A range is of whole numbers where the configuration takes nothing else.
    """
    ends, _, scale = text.strip().partition(":")
    low, dots, high = (end.strip() for end in ends.partition(".."))
    if not dots:
        return Choices(tuple(read_values(text)))
    if scale not in ("", "log", "linear"):
        raise ValueError(f"the scale of a range is log or linear, not {scale!r}")
    if not (NUMBER.fullmatch(low) and NUMBER.fullmatch(high)):
        raise ValueError(f"a range is LOW..HIGH, e.g. 1e-4..10, not {text!r}")
    first, last = float(low), float(high)
    wide = first > 0 and last / first >= DECADE
    found = Range(first, last, log=scale == "log" or (wide and not scale))
    for end in (low, high):
        config.with_setting(key, end)  # its complaint is the better one
    whole = first.is_integer() and last.is_integer() and not _takes(config, key, first + 0.5)
    return replace(found, whole=whole)


def _takes(config: RunConfig, key: str, value: float) -> bool:
    try:
        config.with_setting(key, value)
    except ValueError:
        return False
    return True


def read_values(text: str) -> list[Any]:
    """Values with commas between, of which those within brackets do not count."""
    found = [read_value(part) for part in re.split(r",(?![^\[]*\])", text) if part.strip()]
    if not found:
        raise ValueError("there are no values in it")
    return found


def declared(config: RunConfig, names: bool = False) -> dict[str, Space]:
    """What the parts say of their numbers; ``names``: also of names and flags, which make variants of a method."""
    found: dict[str, Space] = {}
    recipe = config.recipe()
    for family in FAMILIES:
        part, settings = recipe.resolve(family)
        for name, field in part.setting_fields(settings).items():
            extra = field.json_schema_extra
            if isinstance(extra, dict) and "search" in extra:
                space = _of_part(extra["search"], whole=field.annotation is int)
                if names or isinstance(space, Range) or not any(isinstance(v, (str, bool)) for v in space.values):
                    found[f"{family}.{name}"] = space
    return found


def declared_for(config: RunConfig, keys: Iterable[str]) -> dict[str, Space]:
    """The declared spaces of these settings; a ValueError names one that has none."""
    every = {"lr": LR, **declared(config, names=True)}
    for key in keys:
        if key not in every:
            raise ValueError(
                f"no part of {config.method!r} declares where to look for {key!r}{did_you_mean(key, every)} "
                f"(declared: {', '.join(every) or 'none'}; or write {key}=LOW..HIGH)"
            )
    return {key: every[key] for key in keys}


def _of_part(search: Any, whole: bool) -> Space:
    if isinstance(search, dict):
        return Range(**search, whole=whole)
    return Choices(tuple(search))
