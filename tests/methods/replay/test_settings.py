"""The replay parts' settings: those of the papers unless given, and no others than make sense."""

from __future__ import annotations

import pytest

from tests.ranges import check_setting
from tmln.methods import read_settings
from tmln.methods.replay import REPLAYS


@pytest.mark.parametrize(
    ("part", "name", "default", "allowed"),
    [
        *((part, "capacity", 500, "[1, inf)") for part in ("er", "er-ace", "der++")),
        *((part, "batch", None, "[0, inf)") for part in ("er", "er-ace", "der++")),
        *((part, "path", None, "any") for part in ("er", "er-ace", "der++")),
        *((part, "balance", 0.0, "[0, inf)") for part in ("er", "er-ace", "der++")),
        *((part, "selection", "reservoir", "any") for part in ("er", "er-ace", "der++", "distill")),
        *((part, "passes", "together", "any") for part in ("er", "er-ace", "der++", "distill")),
        *((part, "layer", None, "any") for part in ("er", "er-ace", "der++", "distill")),
        ("er", "fill", "end", "any"),
        ("distill", "loss", "sigmoid", "any"),
        ("distill", "share", None, "[0, 1]"),
        ("distill", "temperature", 2.0, "(0, inf)"),
        ("er-ace", "fill", "online", "any"),
        ("er-ace", "asymmetric", True, "any"),
        ("er-ace", "competitors", "batch", "any"),
        ("der++", "fill", "every-epoch", "any"),
        ("der++", "alpha", 0.3, "[0, inf)"),
        ("der++", "beta", 1.0, "[0, inf)"),
    ],
)
def test_defaults_and_ranges(part: str, name: str, default: object, allowed: str) -> None:
    check_setting(REPLAYS[part], name, default, allowed)


@pytest.mark.parametrize(("fill", "needed"), [("end", True), ("online", False), ("every-epoch", False)])
def test_only_a_memory_filled_at_the_end_needs_one(fill: str, needed: bool) -> None:
    assert REPLAYS["er"](read_settings(REPLAYS["er"], {"fill": fill}), seed=0).needs_boundary is needed
