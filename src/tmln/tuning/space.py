"""Define the space of a setting: a range or values, declared by a component or given."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tmln.experiments.config import RunConfig
from tmln.experiments.yaml_reader import NUMBER, read_value
from tmln.methods.registry import FAMILIES, read_settings
from tmln.suggest import did_you_mean

if TYPE_CHECKING:
    from tmln.methods.component import Component

DECADE = 10.0  # ranges at least this wide have a logarithmic scale by default
DIGITS = 4  # significant digits of a drawn number


@dataclass(frozen=True)
class Range:
    """From ``low`` to ``high``, both included, uniform in the logarithm if ``log``."""

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
        """Return the rounded number at a share between 0 and 1 of the range."""
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        return self.round(value)

    def round(self, value: float) -> float | int:
        """Round to a few digits, or to a whole number, within the range."""
        if self.whole:
            return min(max(round(value), math.ceil(self.low)), math.floor(self.high))
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{' (log)' if self.log else ''}"


@dataclass(frozen=True)
class Choices:
    """One of several values."""

    values: tuple[Any, ...]

    def at(self, share: float) -> Any:
        """Return the value at a share of [0, 1): ``Choices((1, 2, 4)).at(0.5)`` is 2."""
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]

    def __str__(self) -> str:
        return ",".join(map(str, self.values))


Space = Range | Choices


LR = Range(0.0003, 0.3, log=True)  # of every method on every benchmark
# The rate where nothing shields, momentum included: eta / (lambda * (1 - mu)). Searched for
# every method unless lr is, so that all methods have the same range of step sizes.
EFFECTIVE_LR = "effective_lr"
EFFECTIVE_RANGE = Range(0.0003, 3.0, log=True)


def read_space(text: str, config: RunConfig, key: str) -> Space:
    """Read a range or values: ``1e-4..10``, ``0..1:linear``, ``1..8:log``, ``32,64,128``.

    A range is logarithmic from a factor of ten on unless it says otherwise, and of whole numbers if
    the configuration accepts no others for this setting.
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
        apply_point(config, {key: float(end) if key == EFFECTIVE_LR else end})  # raises the better error
    whole = first.is_integer() and last.is_integer() and not _accepts(config, key, first + 0.5)
    return replace(found, whole=whole)


def _accepts(config: RunConfig, key: str, value: float) -> bool:
    try:
        apply_point(config, {key: value})
    except ValueError:
        return False
    return True


def apply_point(config: RunConfig, params: Mapping[str, Any]) -> RunConfig:
    """Return the configuration at a point of the space; an effective learning rate becomes ``lr``.

    >>> base = RunConfig(benchmark="split-digits", method="tmln")
    >>> apply_point(base, {"effective_lr": 0.2, "step.damping": 0.5}).lr
    0.1
    """
    found = config.with_settings({key: value for key, value in params.items() if key != EFFECTIVE_LR})
    if EFFECTIVE_LR not in params:
        return found
    kind, settings = found.recipe().resolve("step")
    factor = kind.lr_factor(settings)  # type: ignore[attr-defined]  # a Step
    return found.with_setting("lr", float(f"{params[EFFECTIVE_LR] / factor:.{DIGITS}g}"))


def read_values(text: str) -> list[Any]:
    """Read values separated by commas, except for commas within brackets."""
    found = [read_value(part) for part in re.split(r",(?![^\[]*\])", text) if part.strip()]
    if not found:
        raise ValueError("there are no values in it")
    return found


def declared_spaces(config: RunConfig, names: bool = False) -> dict[str, Space]:
    """Return the spaces that components declare for their numbers.

    Spaces that other settings of the configuration exclude (momentum with ``step.base=adam``) are
    left out. ``names`` includes those of names and flags, which make variants of a method.
    """
    found: dict[str, Space] = {}
    recipe = config.recipe()
    for family in FAMILIES:
        component, settings = recipe.resolve(family)
        for name, field in component.setting_fields(settings).items():
            extra = field.json_schema_extra
            if isinstance(extra, dict) and "search" in extra:
                space = _read_declaration(extra["search"], whole=field.annotation is int)
                numbers = isinstance(space, Range) or not any(isinstance(v, (str, bool)) for v in space.values)
                if (names or numbers) and not _is_excluded(component, settings, name, space.at(0.5)):
                    found[f"{family}.{name}"] = space
    return found


def find_declared(config: RunConfig, keys: Iterable[str]) -> dict[str, Space]:
    """Return the declared spaces of these settings, or raise a ValueError for one without."""
    every = {EFFECTIVE_LR: EFFECTIVE_RANGE, "lr": LR, **declared_spaces(config, names=True)}
    for key in keys:
        if key not in every:
            raise ValueError(
                f"no component of {config.method!r} declares a space for {key!r}{did_you_mean(key, every)} "
                f"(declared: {', '.join(every) or 'none'}; or write {key}=LOW..HIGH)"
            )
    return {key: every[key] for key in keys}


def _is_excluded(component: type[Component[Any]], settings: Any, name: str, value: Any) -> bool:
    """Return whether other given settings refuse a value that is allowed beside the defaults."""

    def accepts(values: Mapping[str, Any]) -> bool:
        try:
            read_settings(component, values)
        except ValueError:
            return False
        return True

    return accepts({name: value}) and not accepts({**settings.model_dump(exclude_unset=True), name: value})


def _read_declaration(search: Any, whole: bool) -> Space:
    if isinstance(search, dict):
        return Range(**search, whole=whole)
    return Choices(tuple(search))
