"""The penalties' settings: those of the papers unless given, and no others than make sense."""

from __future__ import annotations

import math

import pytest

from tests.ranges import check_setting
from tmln.methods import read_settings
from tmln.methods.penalties import PENALTIES

TABLE = [
    ("ewc++", "strength", 10000.0, "[0, inf)"),
    ("ewc++", "alpha", 0.9, "(0, 1]"),
    ("ewc++", "fisher_source", "online", "any"),
    ("ewc++", "init", "zero", "any"),
    ("ewc++", "normalize", False, "any"),
    ("ewc++", "half", True, "any"),
    ("rwalk", "strength", 10.0, "[0, inf)"),
    ("rwalk", "alpha", 0.8, "(0, 1]"),
    ("rwalk", "interval", 50, "[1, inf)"),
    ("rwalk", "eps", 1e-3, "(0, inf)"),
    ("rwalk", "half_distance", True, "any"),
    ("rwalk", "merge", "mean", "any"),
    ("rwalk", "normalize", True, "any"),
    ("rwalk", "init", "zero", "any"),
    ("rwalk", "count", "task", "any"),
    ("rwalk", "relu", "interval", "any"),
    ("ewc", "strength", 100.0, "[0, inf)"),
    ("ewc", "gamma", 1.0, "[0, 1]"),
    ("ewc", "normalize", False, "any"),
    ("ewc", "weighting", "none", "any"),
    ("si", "strength", 1.0, "[0, inf)"),
    ("si", "damping", 1e-3, "(0, inf)"),
    ("mas", "strength", 1.0, "[0, inf)"),
    ("lwf", "strength", 1.0, "[0, inf)"),
    ("lwf", "temperature", 2.0, "(0, inf)"),
    ("consistency", "strength", 0.1, "[0, inf)"),
    ("consistency", "plastic_chance", 0.9, "(0, 1]"),
    ("consistency", "stable_chance", 0.7, "(0, 1]"),
    ("consistency", "plastic_decay", 0.999, "[0, 1)"),
    ("consistency", "stable_decay", 0.999, "[0, 1)"),
    *((part, "proximal", False, "any") for part in ("ewc++", "rwalk", "ewc", "si", "mas")),
]


@pytest.mark.parametrize(("part", "name", "default", "allowed"), TABLE)
def test_defaults_and_ranges(part: str, name: str, default: object, allowed: str) -> None:
    check_setting(PENALTIES[part], name, default, allowed)


def test_every_setting_is_in_the_table() -> None:
    listed = {(part, name) for part, name, *_ in TABLE}
    assert listed == {(part, name) for part, kind in PENALTIES.items() for name in kind.Settings.model_fields}


@pytest.mark.parametrize(
    ("part", "name"), [(row[0], row[1]) for row in TABLE if row[1] in ("strength", "eps", "damping")]
)
def test_numbers_are_finite(part: str, name: str) -> None:
    for value in (math.inf, math.nan):
        with pytest.raises(ValueError, match=name):
            read_settings(PENALTIES[part], {name: value})
