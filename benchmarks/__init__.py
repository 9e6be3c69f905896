"""Measure speed as ratios of contenders that take turns in one process: python -m benchmarks [name ...]."""
