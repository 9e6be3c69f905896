"""The steps' settings: those of the papers unless given, and no others than make sense."""

from __future__ import annotations

import pytest

from tests.ranges import check_setting
from tmln.methods.steps import STEPS


@pytest.mark.parametrize(
    ("part", "name", "default", "allowed"),
    [
        ("sgd", "momentum", 0.0, "[0, 1)"),
        ("sgd", "weight_decay", 0.0, "[0, inf)"),
        ("sgd", "reset", True, "any"),
        ("tmln", "damping", 0.1, "(0, inf)"),
        ("tmln", "trajectory", 1.0, "[0, inf)"),
        ("tmln", "geometry", "fisher", "any"),
        ("tmln", "form", "scaled", "any"),
        ("tmln", "eps", 1e-8, "(0, inf)"),
        ("tmln", "momentum", 0.0, "[0, 1)"),
        ("tmln", "weight_decay", 0.0, "[0, inf)"),
        ("tmln", "clip_norm", None, "(0, inf)"),
        ("tmln", "score_fisher", "previous", "any"),
        ("tmln", "score_max", "global", "any"),
        ("tmln", "match_base_lr", False, "any"),
        ("tmln", "fisher_refresh_every", 0, "[0, inf)"),
        ("tmln", "factors", "boundary", "any"),
        ("tmln", "labels", "mc", "any"),
        ("tmln", "ema", 0.14, "(0, 1]"),
        ("tmln", "update_every", 10, "[1, inf)"),
        ("tmln", "base", "sgd", "any"),
        ("tmln", "beta1", 0.9, "[0, 1)"),
        ("tmln", "beta2", 0.999, "[0, 1)"),
        ("tmln", "decay", 1.0, "[0, 1]"),
        ("tmln", "boundary_every", 0, "[0, inf)"),
        ("tmln", "offload", False, "any"),
        ("tmln", "compact", False, "any"),
        ("upgd", "beta_utility", 0.99, "[0, 1)"),
        ("upgd", "sigma", 0.1, "[0, inf)"),
        ("upgd", "weight_decay", 0.0, "[0, inf)"),
        ("upgd", "factor", 1.0, "(0, inf)"),
        ("upgd", "variant", "global", "any"),
        ("upgd", "protecting", True, "any"),
        ("upgd", "correct_max", False, "any"),
        ("upgd", "guard_negative_max", False, "any"),
        ("ocar", "damping", 0.1, "(0, inf)"),
        ("ocar", "ema", 0.14, "(0, 1]"),
        ("ocar", "update_every", 10, "[1, inf)"),
        ("ocar", "fisher", "mc", "any"),
        ("ocar", "damping_increment", 0.0, "[0, inf)"),
        ("ocar", "damping_init", None, "any"),
        ("ocar", "replay_weight", "one", "any"),
        ("a-gem", "capacity", 500, "[1, inf)"),
        ("a-gem", "batch", 128, "[0, inf)"),
        ("a-gem", "inner", "sgd", "any"),
        ("sam", "rho", 0.05, "[0, inf)"),
        ("sam", "inner", "sgd", "any"),
        ("adamw", "beta1", 0.9, "[0, 1)"),
        ("adamw", "beta2", 0.999, "[0, 1)"),
        ("adamw", "eps", 1e-8, "(0, inf)"),
        ("adamw", "weight_decay", 0.01, "[0, inf)"),
        ("adamw", "reset", True, "any"),
        ("fopng", "damping", 0.001, "(0, inf)"),
        ("fopng", "directions", 20, "[1, inf)"),
        ("fopng", "most", 200, "[1, inf)"),
        ("fopng", "of", "mean", "any"),
        ("fopng", "projection", "orthogonal", "any"),
        ("fopng", "first", "adam", "any"),
        ("fopng", "fisher_refresh_every", 0, "[0, inf)"),
        ("mofo", "fraction", 0.15, "(0, 1]"),
        ("mofo", "beta1", 0.9, "[0, 1)"),
        ("mofo", "beta2", 0.999, "[0, 1)"),
        ("mofo", "eps", 1e-8, "(0, inf)"),
        ("mofo", "weight_decay", 0.0, "[0, inf)"),
        ("mofo", "decay_norms", True, "any"),
        ("mofo", "reset", True, "any"),
    ],
)
def test_defaults_and_ranges(part: str, name: str, default: object, allowed: str) -> None:
    check_setting(STEPS[part], name, default, allowed)


def test_who_needs_to_be_told_where_a_task_ends() -> None:
    assert {name: kind.needs_boundary for name, kind in STEPS.items()} == {
        "sgd": False,
        "tmln": True,
        "upgd": False,
        "ocar": False,
        "a-gem": True,
        "sam": False,
        "adamw": False,
        "mofo": False,
        "fopng": True,
        "frozen": False,
        "first-session": True,
        "gem": True,
        "retrain": True,
        "slow-backbone": False,
    }
