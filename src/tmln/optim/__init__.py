"""Gradient -> move: optimizers for any PyTorch loop."""

from tmln.optim.ocar import OCAR
from tmln.optim.tmln import TMLN, Consolidation, Protection
from tmln.optim.tmln_kfac import TMLNKFAC
from tmln.optim.upgd import UPGD

__all__ = ["OCAR", "TMLN", "TMLNKFAC", "UPGD", "Consolidation", "Protection"]
