"""What is added to the loss, so that what was learned before is kept."""

from __future__ import annotations

from typing import Any

from tmln.parts import Family, Penalty
from tmln.penalties.consistency import Consistency
from tmln.penalties.ewc import EWC
from tmln.penalties.ewcpp import EWCPlusPlus
from tmln.penalties.lwf import LwF
from tmln.penalties.mas import MAS
from tmln.penalties.none import NoPenalty
from tmln.penalties.rwalk import RWalk
from tmln.penalties.si import SI

PENALTIES: Family[Penalty[Any]] = Family(Penalty, NoPenalty, EWCPlusPlus, RWalk, EWC, SI, MAS, LwF, Consistency)

__all__ = ["EWC", "MAS", "PENALTIES", "SI", "Consistency", "EWCPlusPlus", "LwF", "NoPenalty", "RWalk"]
