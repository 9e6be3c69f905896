"""Published results are checked by running some of them again: match, differs, or cannot be run, and why.

The same kind of machine (processor, instructions, device, threads, torch) must give the same bits. Elsewhere rounding
differs, and training makes more of it: there the accuracies of learned tasks may differ by a stated tolerance in the
mean.
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
from tmln.experiments.result import Result
from tmln.experiments.run_options import RunOptions
from tmln.experiments.store import Store
from tmln.models.custom import check_allowed

# Of the mean absolute difference between two accuracy matrices, over tasks that were learned: see docs/lab.md.
TOLERANCE = 0.02
SHOULD = ", which should give the same bits"
KIND = ("processor", "instructions", "device", "threads", "system")  # of a machine, on which the bits depend


@dataclass(frozen=True)
class Verdict:
    """About one run; ``text`` says by how much, or why not."""

    name: str
    state: Literal["match", "differs", "cannot"]
    text: str


def drawn(results: Sequence[Result], sample: int, seed: int) -> list[Result]:
    """A random few, the same for the same seed; all where there are no more."""
    ordered = sorted(results, key=lambda result: result.name)
    return ordered if sample >= len(ordered) else random.Random(seed).sample(ordered, sample)


def job_of(result: Result) -> Job:
    """What makes the run again; a ValueError says why nothing does."""
    config = RunConfig.of(result.config)
    if run_id(config) != result.name:
        raise ValueError("this version of tmln makes another run of its configuration")
    check_allowed(str(result.config.get("model")), config.model_options)
    config.recipe().check_code()
    return Job(config)


def runnable(results: Sequence[Result]) -> tuple[dict[str, Job], list[Verdict]]:
    """The jobs of those that can be run, by name, and why the others cannot: configurations are somebody else's."""
    jobs: dict[str, Job] = {}
    cannot: list[Verdict] = []
    for result in results:
        try:
            jobs[result.name] = job_of(result)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            cannot.append(Verdict(result.name, "cannot", str(error)))
    return jobs, cannot


def run_again(
    store: Store,
    results: Sequence[Result],
    jobs: Mapping[str, Job],
    tolerance: float = TOLERANCE,
    executor: ExecutorConfig | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
) -> list[Verdict]:
    """Each job once more, in this store, with the threads it had; what is finished there is not run again."""
    mine = [result for result in results if result.name in jobs]
    failed: dict[str, str] = {}
    for threads in dict.fromkeys(map(_threads, mine)):
        group = [jobs[result.name] for result in mine if _threads(result) == threads]
        failures = execute(
            store, group, RunOptions(threads=threads), executor or ExecutorConfig("serial"), on_event=on_event
        )
        failed |= {run_id(failure.job.config): failure.error for failure in failures}
    verdicts = []
    for result in mine:
        again = None if result.name in failed else store.result(result.name)
        missing = Verdict(result.name, "cannot", failed.get(result.name, "it has no result here"))
        verdicts.append(missing if again is None else judge(result, again, tolerance))
    return verdicts


def _threads(result: Result) -> int | None:
    """As many as the run had; the rule's, where the file says what no run would have."""
    found = result.machine.get("threads")
    return found if type(found) is int and 0 < found <= max(MOST, cores()) else None


def judge(published: Result, again: Result, tolerance: float = TOLERANCE) -> Verdict:
    """Two results of one configuration.

    >>> judge(Result("b", "m", 0, {}, [[0.5]]), Result("b", "m", 0, {}, [[0.9]])).state
    'differs'
    """
    other = unlike(published, again)
    where = f"on another kind of machine ({'; '.join(other)})" if other else "on the same kind of machine"

    def verdict(state: Literal["match", "differs"], text: str) -> Verdict:
        by = "" if state == "match" else _source(published, again)
        return Verdict(published.name, state, f"{text}{by}")

    if bool(published.diverged) != bool(again.diverged):
        which = "the published run diverged, this one did not" if published.diverged else "it diverged here"
        return verdict("differs", f"{which}, {where}")
    first, second = (np.asarray(result.accuracy, dtype=np.float64) for result in (published, again))
    if first.shape != second.shape:
        return verdict("differs", f"its accuracy matrix is {_shape(first)}, here {_shape(second)}")
    unequal_weights = bool(published.weights_sha256) and published.weights_sha256 != again.weights_sha256
    if np.array_equal(first, second, equal_nan=True):
        if not unequal_weights:
            what = "every accuracy and every bit of the weights" if published.weights_sha256 else "every accuracy"
            return verdict("match", f"{what} equal, {where}")
        if other:
            return verdict("match", f"every accuracy equal, weights not to the bit, {where}")
        return verdict(
            "differs", f"every accuracy equal, but not the weights, {where}, which should give the same bits"
        )
    seen = np.tril(np.ones(first.shape, dtype=bool)) if first.shape[0] > 1 else np.ones(first.shape, dtype=bool)
    gaps = np.abs(first - second)
    mean, most = 100 * float(gaps[seen].mean()), 100 * float(gaps.max())
    ends = 100 * float(second[-1].mean() - first[-1].mean())
    text = f"accuracies differ by {mean:.2f} points in the mean, {most:.2f} at most; ACC by {ends:+.2f}"
    if not other:
        return verdict("differs", f"{text}, {where}{SHOULD}")
    within = mean <= 100 * tolerance
    told = f"{'within' if within else 'more than'} the tolerance of {100 * tolerance:g}"
    return verdict("match" if within else "differs", f"{text}, {told}, {where}")


def unlike(first: Result, second: Result) -> list[str]:
    """In what the two were computed otherwise, as far as their bits depend on it."""
    pairs: list[tuple[str, Any, Any]] = [(key, first.machine.get(key), second.machine.get(key)) for key in KIND]
    pairs.append(("torch", first.versions.get("torch"), second.versions.get("torch")))
    pairs.append(("samples at a time", first.micro_batch or "all", second.micro_batch or "all"))
    return [f"{key}: {_short(there)}, here {_short(here)}" for key, there, here in pairs if there != here]


def _source(first: Result, second: Result) -> str:
    """Whose code it was, where that is not the same."""
    for what, there, here in (
        ("commit", first.commit, second.commit),
        ("version", first.versions.get("tmln"), second.versions.get("tmln")),
    ):
        if there != here:
            return f"; it was made by {what} {_short(there or 'unknown')} of tmln, this is {_short(here or 'unknown')}"
    return ""


def _short(value: Any) -> str:
    return str(value)[:60]


def _shape(matrix: Any) -> str:
    return " by ".join(map(str, matrix.shape))
