"""Intransigence where it can be had: each result is given the accuracies of its own reference, found by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tmln.experiments.result import ORACLES, Oracle, Result


def with_references(results: Iterable[Result], oracle: Oracle | None = None) -> list[Result]:
    """The results, held against their references, also where those were finished later.

    ``prefix`` is preferred to ``final``, and that to ``independent``; ``oracle`` asks for one and no other.
    """
    given = list(results)
    kinds = {result.kind for result in given} | {result.oracle for result in given}
    wanted = [name for name in ORACLES if name in kinds] if oracle is None else [oracle]
    if wanted:
        given = [named(result) for result in given]
    references = {result.name: result for result in given if result.kind is not None}
    return [with_reference(result, references.get, wanted) for result in given]


def with_reference(result: Result, find: Callable[[str], Result | None], oracles: Sequence[Oracle]) -> Result:
    """The result, held against the first of these references that ``find`` has, by name.

    What it was held against when it ran counts where that is the same; any other is left out.
    """
    if result.diverged or result.kind or result.references is None:
        return result
    for oracle in oracles:
        name = result.references.get(oracle, "")
        reference = find(name) if name else None
        accuracies = () if reference is None else reference.as_reference(oracle)
        if accuracies and len(accuracies) == len(result.accuracy):
            return replace(result, oracle=oracle, reference=name, reference_accuracy=accuracies)
        if name and (result.oracle, result.reference) == (oracle, name):
            return result
    return result.without_reference()


def named(result: Result) -> Result:
    """The result with the names of its references; those of earlier versions are worked out, which takes torch."""
    if result.references is not None:
        return result
    from tmln.experiments.reference_runs import with_names

    return with_names(result)
