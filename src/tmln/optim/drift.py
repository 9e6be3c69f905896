"""Has the loss risen? A test after every step whose false alarms are bounded whatever the losses' distribution.

Conformal p-values, bet on by a mixture of powers, in a Shiryaev-Roberts procedure (Vovk et al. 2021, Retrain or not
retrain: conformal test martingales for change-point detection).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from typing import Any

import torch

from tmln.optim.checks import check_at_least


def rank_p_value(loss: float, past: list[float], tie: float) -> float:
    """The share of ``past`` (sorted) and this loss that is as high: uniform where all come from one distribution.

    ``tie``, uniform in (0, 1), settles where among its equals, itself at least, it stands.

    >>> rank_p_value(5.0, [1.0, 2.0, 3.0], 0.5)
    0.125
    >>> rank_p_value(2.0, [1.0, 2.0, 3.0], 0.5)
    0.5
    """
    above = len(past) - bisect_right(past, loss)
    equal = len(past) - above - bisect_left(past, loss)
    return (above + tie * (equal + 1)) / (len(past) + 1)


def winnings(p: float) -> float:
    """The mixture over kappa in (0, 1) of kappa*p^(kappa-1): (1 - p + p*ln p) / (p*ln^2 p), whose mean over p is 1."""
    if p > 0.9999:
        return 0.5  # its limit, where the formula is 0/0
    log = math.log(p)
    return (1.0 - p + p * log) / (p * log * log)


class Drift:
    """Call it with the loss of every step's new samples; it is True where they have become harder.

    R <- (1 + R) * winnings(p), with p the rank of the loss among those of its window so far; an alarm where R >=
    ``alarm_every``. While the losses come from one distribution, whichever it is, R minus the number of steps is a
    martingale, so alarms are at least ``alarm_every`` steps apart on average: the false-alarm rate is at most
    1/``alarm_every``. A loss that falls, as while learning, gives no more; losses that depend on each other may.

    Every ``window`` steps the comparison begins anew, so that the high losses of a beginning do not hide a rise.
    """

    def __init__(self, alarm_every: int = 1000, window: int = 200, seed: int = 0) -> None:
        check_at_least("alarm_every", alarm_every, 1)
        check_at_least("window", window, 2)
        self.alarm_every, self.window = alarm_every, window
        self.generator = torch.Generator().manual_seed(seed)
        self.past: list[float] = []
        self.evidence = 0.0

    def __call__(self, loss: float) -> bool:
        if not math.isfinite(loss):
            raise ValueError(f"the loss is {loss}, of which no drift can be told; look at the batch, or lower lr")
        if len(self.past) == self.window:
            self.past = []
        tie = 1.0 - float(torch.rand((), dtype=torch.float64, generator=self.generator))
        self.evidence = (1.0 + self.evidence) * winnings(rank_p_value(loss, self.past, tie))
        insort(self.past, loss)
        if self.evidence < self.alarm_every:
            return False
        self.past, self.evidence = [], 0.0
        return True

    def state_dict(self) -> dict[str, Any]:
        """The losses of the window, the evidence, and the generator that settles ties."""
        return {"past": list(self.past), "evidence": self.evidence, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        self.past, self.evidence = list(state["past"]), float(state["evidence"])
        self.generator.set_state(state["generator"].cpu())
