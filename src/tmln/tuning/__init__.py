"""Choose settings: grids, random draws, and searches with Optuna."""
