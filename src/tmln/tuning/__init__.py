"""Which runs: grids, random draws, and searches with Optuna."""
