"""Matched rates: SGD at the rate that TMLN has in the first task takes the same first steps."""

from __future__ import annotations

from tmln.experiments.config import RunConfig
from tmln.experiments.matched_lr import equal_rate


def test_the_rate_by_hand() -> None:
    tmln = RunConfig(benchmark="split-digits", method="tmln")
    assert equal_rate(tmln) == {"lr": 0.1, "step.momentum": 0.0}
    other = tmln.with_settings({"lr": 0.03, "step.damping": 0.2})
    assert equal_rate(other)["lr"] == 0.15
    assert RunConfig(benchmark="split-digits", method="er").with_settings(equal_rate(tmln)).resolved()["lr"] == 0.1
