"""Networks one of whose ranks dies, or is sent signals, once: for runs of two processes."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path

from torch import Tensor

from tests.experiments.killing import Mortal
from tmln.models import MLP


class MortalRank(Mortal):
    """As :class:`Mortal`, of the process with LOCAL_RANK 1 alone."""

    def forward(self, x: Tensor) -> Tensor:
        if os.environ.get("LOCAL_RANK") != "1":
            self.left += self.training
        return super().forward(x)


class Signalled(MLP):
    """Sends signals at a batch in training, once: a terminal's Ctrl-C is every process's own at once.

    ``sent`` says what and where, as ``1:SIGTERM`` (to rank 1) or ``01:SIGINT,SIGINT`` (two to each rank).
    """

    def __init__(self, shape: tuple[int, ...], classes: int, after: str, at: int, sent: str) -> None:
        super().__init__(math.prod(shape), 128, classes)
        self.after, self.left = Path(after), at
        self.ranks, _, self.signals = sent.partition(":")
        self.sends = os.environ.get("LOCAL_RANK", "0") in self.ranks and not self.after.exists()

    def forward(self, x: Tensor) -> Tensor:
        self.left -= self.training
        if self.left < 0 and self.sends:
            self.sends = False
            self.after.touch()  # by whichever rank is first: a rank that is ended before its turn sends nothing later
            for name in self.signals.split(","):
                signal.raise_signal(signal.Signals[name])
        return super().forward(x)
