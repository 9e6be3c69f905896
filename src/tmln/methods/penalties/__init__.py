"""What is added to the loss, so that what was learned before is kept."""

from __future__ import annotations

from typing import Any

from tmln.methods import Family, Penalty
from tmln.methods.penalties.consistency import Consistency
from tmln.methods.penalties.ewc import EWC
from tmln.methods.penalties.ewc_pp import EWCPlusPlus
from tmln.methods.penalties.lwf import LwF
from tmln.methods.penalties.mas import MAS
from tmln.methods.penalties.none import NoPenalty
from tmln.methods.penalties.rwalk import RWalk
from tmln.methods.penalties.si import SI

PENALTIES: Family[Penalty[Any]] = Family(Penalty, NoPenalty, EWCPlusPlus, RWalk, EWC, SI, MAS, LwF, Consistency)

__all__ = ["EWC", "MAS", "PENALTIES", "SI", "Consistency", "EWCPlusPlus", "LwF", "NoPenalty", "RWalk"]
