"""Check published results by running some of them again: each matches, differs, or cannot be run.

The same kind of machine (processor, instructions, device, threads, torch) must give the same bits.
Elsewhere rounding differs and training magnifies it: there the mean difference of accuracies on
learned tasks may reach a stated tolerance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tmln.executors.config import MOST, ExecutorConfig, cores
from tmln.executors.execute import Event, execute
from tmln.executors.plan import Job
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.launch import RunOptions
from tmln.experiments.result import Result
from tmln.experiments.store import Store
from tmln.models.custom import check_allowed
from tmln.printable import one_line
from tmln.streams.options import LOCATION_OPTIONS

# Mean absolute difference between two accuracy matrices, over tasks that were learned: see
# docs/experiments.md.
TOLERANCE = 0.02
SHOULD = ", which should give the same bits"
KIND = ("processor", "instructions", "device", "threads", "system")  # properties of a machine that decide on bits
FOLDERS = ("replay.path",)  # settings that make a run write outside its own folder


@dataclass(frozen=True)
class Verdict:
    """The outcome of one run; ``text`` says by how much it differs, or why it cannot be run."""

    name: str
    state: Literal["match", "differs", "cannot"]
    text: str


def draw_sample(results: Sequence[Result], sample: int, seed: int) -> list[Result]:
    """Return a random sample of results, the same for the same seed; all if there are no more."""
    ordered = sorted(results, key=lambda result: result.name)
    return ordered if sample >= len(ordered) else random.Random(seed).sample(ordered, sample)


def make_job(result: Result) -> Job:
    """Return the job that repeats a run; a ValueError says why it cannot or may not be run."""
    config = RunConfig.of(result.config)
    if run_id(config) != result.name:
        raise ValueError("this version of tmln makes another run of its configuration")
    if named := [f"benchmark.{key}" for key in LOCATION_OPTIONS if key in config.benchmark_options] + [
        key for key in FOLDERS if config.settings.get(key) is not None
    ]:
        raise ValueError(f"its setting {named[0]} names a folder or a limit of this machine, which a file may not")
    if config.benchmark.partition(":")[0] == "own":
        where = config.benchmark_options.get("path")
        raise ValueError(f"its data {where} are a user's own, which a file may not have read or downloaded")
    check_allowed(str(result.config.get("model")), config.model_options, foreign=True)
    config.recipe().check_code()
    return Job(config)


def make_jobs(results: Sequence[Result]) -> tuple[dict[str, Job], list[Verdict]]:
    """Return jobs by run name, and a verdict with the reason for each result that cannot be run."""
    jobs: dict[str, Job] = {}
    cannot: list[Verdict] = []
    for result in results:
        try:
            jobs[result.name] = make_job(result)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            cannot.append(Verdict(result.name, "cannot", one_line(str(error))))
    return jobs, cannot


def run_again(
    store: Store,
    results: Sequence[Result],
    jobs: Mapping[str, Job],
    tolerance: float = TOLERANCE,
    on_event: Callable[[Event], None] = lambda event: None,
) -> list[Verdict]:
    """Repeat each job in this store with its number of threads; finished ones are not run again."""
    mine = [result for result in results if result.name in jobs]
    failed: dict[str, str] = {}
    for threads in dict.fromkeys(map(_threads, mine)):
        group = [jobs[result.name] for result in mine if _threads(result) == threads]
        failures = execute(store, group, RunOptions(threads=threads), ExecutorConfig("serial"), on_event=on_event)
        failed |= {run_id(failure.job.config): failure.error for failure in failures}
    verdicts = []
    for result in mine:
        again = None if result.name in failed else store.result(result.name)
        missing = Verdict(result.name, "cannot", one_line(failed.get(result.name, "it has no result here")))
        verdicts.append(missing if again is None else compare_results(result, again, tolerance))
    return verdicts


def _threads(result: Result) -> int | None:
    """Return the run's number of threads; None (the default rule) for an impossible one."""
    found = result.machine.get("threads")
    return found if type(found) is int and 0 < found <= max(MOST, cores()) else None


def compare_results(published: Result, again: Result, tolerance: float = TOLERANCE) -> Verdict:
    """Compare two results of one configuration.

    >>> first, second = (Result("b", "m", 0, {}, accuracy=[[value]]) for value in (0.5, 0.9))
    >>> compare_results(first, second).state
    'differs'
    """
    other = list_differences(published, again)
    where = f"on another kind of machine ({'; '.join(other)})" if other else "on the same kind of machine"

    def verdict(state: Literal["match", "differs"], text: str) -> Verdict:
        by = "" if state == "match" else _source(published, again)
        return Verdict(published.name, state, f"{text}{by}")

    if bool(published.diverged) != bool(again.diverged):
        which = "the published run diverged, this one did not" if published.diverged else "it diverged here"
        return verdict("differs", f"{which}, {where}")
    first, second = (np.asarray(result.accuracy, dtype=np.float64) for result in (published, again))
    if first.shape != second.shape:
        shapes = [" by ".join(map(str, matrix.shape)) for matrix in (first, second)]
        return verdict("differs", f"its accuracy matrix is {shapes[0]}, here {shapes[1]}")
    unequal_weights = bool(published.weights_sha256) and published.weights_sha256 != again.weights_sha256
    if np.array_equal(first, second, equal_nan=True):
        if not unequal_weights:
            what = "every accuracy and every bit of the weights" if published.weights_sha256 else "every accuracy"
            return verdict("match", f"{what} equal, {where}")
        if other:
            return verdict("match", f"every accuracy equal, weights not to the bit, {where}")
        return verdict("differs", f"every accuracy equal, but not the weights, {where}{SHOULD}")
    seen = np.tril(np.ones(first.shape, dtype=bool)) if first.shape[0] > 1 else np.ones(first.shape, dtype=bool)
    gaps = np.abs(first - second)
    mean, most = 100 * float(gaps[seen].mean()), 100 * float(gaps.max())
    ends = 100 * float(second[-1].mean() - first[-1].mean())
    text = f"accuracies differ by {mean:.2f} points in the mean, {most:.2f} at most; ACC by {ends:+.2f}"
    if not other:
        return verdict("differs", f"{text}, {where}{SHOULD}")
    within = mean <= 100 * tolerance
    limit = f"{'within' if within else 'more than'} the tolerance of {100 * tolerance:g}"
    return verdict("match" if within else "differs", f"{text}, {limit}, {where}")


def list_differences(first: Result, second: Result) -> list[str]:
    """Return the properties of machines and libraries, on which bits depend, that differ."""
    pairs: list[tuple[str, Any, Any]] = [(key, first.machine.get(key), second.machine.get(key)) for key in KIND]
    pairs.append(("torch", first.versions.get("torch"), second.versions.get("torch")))
    pairs.append(("samples at a time", first.micro_batch or "all", second.micro_batch or "all"))
    return [f"{key}: {_shorten(there)}, here {_shorten(here)}" for key, there, here in pairs if there != here]


def _source(first: Result, second: Result) -> str:
    """Return which commit or version of tmln made each, if they differ."""
    for what, there, here in (
        ("commit", first.commit, second.commit),
        ("version", first.versions.get("tmln"), second.versions.get("tmln")),
    ):
        if there != here:
            names = [_shorten(value or "unknown") for value in (there, here)]
            return f"; it was made by {what} {names[0]} of tmln, this is {names[1]}"
    return ""


def _shorten(value: Any) -> str:
    return one_line(str(value)[:60])
