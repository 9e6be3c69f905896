"""What runs say, without torch: reading, statistics, rows, fronts, the sentence, notes and tables."""

from tmln.results.statistics import Comparison, Summary, compare, missing_seeds, summarise

__all__ = ["Comparison", "Summary", "compare", "missing_seeds", "summarise"]
