"""What runs say, without torch: reading, statistics, rows, fronts, the sentence, notes and tables."""
