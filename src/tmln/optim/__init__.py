"""Gradient -> move: optimizers for any PyTorch loop."""

from tmln.optim.drift import Drift
from tmln.optim.fopng import FOPNG
from tmln.optim.mofo import MoFO
from tmln.optim.ocar import OCAR
from tmln.optim.task_free import Boundaries
from tmln.optim.tmln import TMLN, Consolidation, Protection
from tmln.optim.tmln_kfac import TMLNKFAC
from tmln.optim.upgd import UPGD

__all__ = ["FOPNG", "OCAR", "TMLN", "TMLNKFAC", "UPGD", "Boundaries", "Consolidation", "Drift", "MoFO", "Protection"]
