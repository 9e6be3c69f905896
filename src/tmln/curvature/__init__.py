"""Curvature of a model on data: diagonal Fisher, Kronecker factors, per-sample gradients."""

from tmln.curvature.fisher import Fisher, diagonal_fisher
from tmln.curvature.layer_rules import register_rule

__all__ = ["Fisher", "diagonal_fisher", "register_rule"]
