"""Equal footing: a method with plain SGD steps at the rate that TMLN has in task 1, before it has a metric."""

from __future__ import annotations

from typing import Any

from tmln.experiments.config import RunConfig


def equal_rate(tmln: RunConfig) -> dict[str, Any]:
    """The settings of ``naive at eta/lambda`` and its like, of a run of TMLN's as it is configured.

    >>> equal_rate(RunConfig(benchmark="split-digits", method="tmln"))
    {'lr': 0.1, 'step.momentum': 0.0}
    """
    full = tmln.resolved()
    rate = float(f"{full['lr'] / full['settings']['step.damping']:.12g}")  # 0.1, not 0.09999999999999999
    return {"lr": rate, "step.momentum": 0.0}
