"""Gradient -> move: optimizers for any PyTorch loop."""

from tmln.optim.tmln import TMLN

__all__ = ["TMLN"]
