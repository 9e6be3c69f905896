"""A network whose second rank dies once, for runs of two processes."""

from __future__ import annotations

import os

from torch import Tensor

from tests.lab.killing import Mortal


class MortalRank(Mortal):
    """As :class:`Mortal`, of the process with LOCAL_RANK 1 alone."""

    def forward(self, x: Tensor) -> Tensor:
        if os.environ.get("LOCAL_RANK") != "1":
            self.left += self.training
        return super().forward(x)
