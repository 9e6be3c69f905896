"""Replay: what joins the batch, and how is it scored?"""

from typing import Any

from tmln.methods import Family, Replay
from tmln.methods.replay.derpp import DERpp
from tmln.methods.replay.distill import Distill
from tmln.methods.replay.er import ER
from tmln.methods.replay.er_ace import ERACE
from tmln.methods.replay.features import FeatureReplay
from tmln.methods.replay.lucir import LUCIR
from tmln.methods.replay.mir import MIR
from tmln.methods.replay.none import NoReplay
from tmln.methods.replay.reservoir import Reservoir
from tmln.methods.replay.scr import SCR
from tmln.methods.replay.xder import XDER

REPLAYS: Family[Replay[Any]] = Family(Replay, NoReplay, ER, DERpp, ERACE, Distill, MIR, FeatureReplay, SCR, XDER, LUCIR)

__all__ = ["REPLAYS", "Reservoir"]
