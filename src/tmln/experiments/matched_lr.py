"""Plain SGD at the effective rate that TMLN has before it has a metric."""

from __future__ import annotations

from typing import Any

from tmln.experiments.config import RunConfig


def equal_rate(tmln: RunConfig) -> dict[str, Any]:
    """Return the settings of plain SGD at the effective rate of a TMLN run, eta/lambda.

    In task 1, before there is a metric, both take the same steps.

    >>> equal_rate(RunConfig(benchmark="split-digits", method="tmln"))
    {'lr': 0.1, 'step.momentum': 0.0}
    """
    full = tmln.resolved()
    rate = float(f"{full['lr'] / full['settings']['step.damping']:.12g}")  # 0.1, not 0.09999999999999999
    return {"lr": rate, "step.momentum": 0.0}
