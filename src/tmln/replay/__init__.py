"""What joins the batch: memories."""

from tmln.replay.reservoir import Reservoir

__all__ = ["Reservoir"]
