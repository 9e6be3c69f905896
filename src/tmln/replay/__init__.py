"""What joins the batch, and how is it scored: memories and the parts that use them."""

from typing import Any

from tmln.parts import Family, Replay
from tmln.replay.derpp import DERpp
from tmln.replay.distill import Distill
from tmln.replay.er import ER
from tmln.replay.erace import ERACE
from tmln.replay.none import NoReplay
from tmln.replay.reservoir import Reservoir

REPLAYS: Family[Replay[Any]] = Family(Replay, NoReplay, ER, DERpp, ERACE, Distill)

__all__ = ["REPLAYS", "Reservoir"]
