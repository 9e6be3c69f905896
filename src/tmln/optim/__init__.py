"""Optimizers for continual learning, for use in any PyTorch loop."""

from tmln.optim.fopng import FOPNG
from tmln.optim.mofo import MoFO
from tmln.optim.ocar import OCAR
from tmln.optim.task_free import Boundaries, Drift
from tmln.optim.tmln import TMLN, Consolidation, Protection
from tmln.optim.tmln_kfac import TMLNKFAC
from tmln.optim.upgd import UPGD

__all__ = ["FOPNG", "OCAR", "TMLN", "TMLNKFAC", "UPGD", "Boundaries", "Consolidation", "Drift", "MoFO", "Protection"]
