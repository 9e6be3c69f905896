"""Read runs and analyse them without torch: statistics, tests, rows, fronts, tables, text."""
