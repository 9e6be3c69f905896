"""What a run of each benchmark takes where its configuration is silent: the paper's where the paper has it."""

from __future__ import annotations

from dataclasses import dataclass

from tmln.suggest import did_you_mean


@dataclass(frozen=True)
class Defaults:
    """One row. ``tasks`` is the benchmark's own number, None where its data say."""

    model: str
    epochs: int
    batch_size: int = 128
    lr: float = 0.01
    tasks: int | None = None


DEFAULTS: dict[str, Defaults] = {
    "split-digits": Defaults("mlp", 10, batch_size=32, tasks=5),
    "rotated-digits": Defaults("mlp", 10, batch_size=32, tasks=8),
    "split-mnist": Defaults("mlp", 5, tasks=5),
    "permuted-mnist": Defaults("mlp", 5, tasks=10),
    "rotated-mnist": Defaults("mlp", 5, tasks=10),
    "split-fashion-mnist": Defaults("mlp", 5, tasks=5),
    "split-cifar10": Defaults("resnet18", 20, tasks=5),
    "split-cifar100": Defaults("resnet18", 50, tasks=10),
    "split-tiny-imagenet": Defaults("resnet18", 50, tasks=10),
    "core50": Defaults("mobilenetv2", 20, tasks=8),
    "folder": Defaults("resnet18-slim", 10),
}


def defaults_of(benchmark: str) -> Defaults:
    """The row of a benchmark; ``folder:PATH`` is of ``folder``."""
    row, _, path = benchmark.partition(":")
    if row not in DEFAULTS or (path and row != "folder"):
        raise ValueError(f"unknown benchmark {benchmark!r}{did_you_mean(benchmark, DEFAULTS)} (tmln list benchmarks)")
    return DEFAULTS[row]
