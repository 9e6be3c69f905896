"""What is claimed of a table, as data: the page writes it down, and works out nothing of it anew."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tmln.metrics import metric_of
from tmln.results.chosen import choices, passed_over
from tmln.results.contest import Contest, contest
from tmln.results.learned import not_learned
from tmln.results.rows import Row


@dataclass(frozen=True)
class Marks:
    """Labels of rows: what takes part, what another configuration was chosen before, what stands out in each metric."""

    contestants: frozenset[str]
    passed_over: frozenset[str]
    not_learned: Mapping[str, str]
    strong: Mapping[str, set[str]]


def marks_of(rows: Sequence[Row], metrics: Iterable[str]) -> Marks:
    """Of the rows of one table."""
    return Marks(
        frozenset(row.label for row in contest(rows).contestants),
        frozenset(row.label for row in passed_over(rows)),
        not_learned(rows),
        {metric: contest(rows, metric).strong for metric in metrics if metric_of(metric).contest},
    )


def verdict(rows: Sequence[Row]) -> dict[str, Any]:
    """The most accurate and the least forgetful row of a table, the nearest rival of each, and how sure that is."""
    return {"fair": any(choice.fair for choice in choices(rows)), **{m: _best(contest(rows, m)) for m in ("acc", "fm")}}


def _best(found: Contest) -> dict[str, Any]:
    near = next(iter(found.rivals), None)
    p = math.nan if near is None else near.corrected
    return {
        "first": None if found.reference is None else found.reference.label,
        "won": found.won,
        "near": None if near is None else near.row.label,
        "shared": 0 if near is None else near.plain.n,
        "corrected": p if math.isfinite(p) else None,
    }
