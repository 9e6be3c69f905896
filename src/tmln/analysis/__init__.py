"""What can be said from finished runs."""

from tmln.analysis.statistics import Comparison, Summary, compare, missing_seeds, summarise

__all__ = ["Comparison", "Summary", "compare", "missing_seeds", "summarise"]
