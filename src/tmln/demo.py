"""The one-minute tour: a few methods on Split-Digits, over seeds, and the table of how well they did."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from tmln import metrics
from tmln.learner import Learner
from tmln.models import make_model
from tmln.streams import Stream, make_stream

METHODS = ("naive", "er", "tmln")
SEEDS = 3
EPOCHS = 10
BATCH = 32


@dataclass(frozen=True)
class Outcome:
    """One method with one seed: its accuracy matrix and how long it took."""

    method: str
    seed: int
    accuracy: list[list[float]]
    seconds: float


def run_once(stream: Stream, method: str, seed: int, after_task: Callable[[], None] = lambda: None) -> Outcome:
    """Learn every task in turn; after each, test on all."""
    torch.manual_seed(seed)  # the same initial network for every method
    model = make_model("mlp", stream.shape, stream.classes)
    learner = Learner(model, method, batch_size=BATCH, seed=seed, augment=stream.augment, prepare=stream.prepare)
    begin, accuracy = time.perf_counter(), []
    for task in stream:
        learner.learn(task.train, EPOCHS, classes=task.classes)
        accuracy.append([learner.evaluate(test)["accuracy"] for test in stream.tests])
        after_task()
    return Outcome(method, seed, accuracy, time.perf_counter() - begin)


def run_demo(methods: Sequence[str] = METHODS, seeds: int = SEEDS) -> list[Outcome]:
    """Every method with every seed, under a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    torch.set_num_threads(1)  # these networks are too small to share
    stream = make_stream("split-digits")
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        work = bar.add_task("", total=len(methods) * seeds * len(stream))
        outcomes = []
        for method in methods:
            for seed in range(seeds):
                bar.update(work, description=f"{method}, seed {seed}")
                outcomes.append(run_once(stream, method, seed, lambda: bar.advance(work)))
    return outcomes


def spread(values: Sequence[float], scale: float = 1.0, digits: int = 1) -> str:
    """Mean +- sample standard deviation."""
    mean = scale * statistics.fmean(values)
    deviation = scale * statistics.stdev(values) if len(values) > 1 else float("nan")
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def print_demo() -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print("Split-Digits: ten digits in five tasks of two, one head, no task identity at test time.")
    outcomes = run_demo()
    table = Table(title=f"After the last task, {SEEDS} seeds (mean ± std)")
    for heading in ("method", "ACC % ↑", "FM % ↓", "seconds"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for method in dict.fromkeys(outcome.method for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.method == method]
        table.add_row(
            method,
            spread([metrics.average_accuracy(o.accuracy) for o in mine], 100),
            spread([metrics.forgetting(o.accuracy) for o in mine], 100),
            spread([o.seconds for o in mine], digits=2),
        )
    console.print(table)
    console.print(
        "ACC: accuracy over all tasks. FM: how far tasks fell from their best. "
        "Next: tmln list methods, or the three lines in the README for your own loop.",
        style="dim",
    )
