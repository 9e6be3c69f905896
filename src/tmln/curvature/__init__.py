"""Model and data -> metric."""

from tmln.curvature.fisher import Fisher, diagonal_fisher

__all__ = ["Fisher", "diagonal_fisher"]
