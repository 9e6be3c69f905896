"""What is claimed of a table, as data: the page writes it down, and works out nothing of it anew."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tmln.metrics import metric_of
from tmln.results.learning_check import find_unlearned
from tmln.results.rows import Row
from tmln.results.selection import find_unselected, select_configurations
from tmln.results.significance import Significance, assess_significance


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
        frozenset(row.label for row in assess_significance(rows).candidates),
        frozenset(row.label for row in find_unselected(rows)),
        find_unlearned(rows),
        {metric: assess_significance(rows, metric).strong for metric in metrics if metric_of(metric).contest},
    )


def verdict(rows: Sequence[Row]) -> dict[str, Any]:
    """The most accurate and the least forgetful row of a table, the nearest rival of each, and how sure that is."""
    return {
        "fair": any(choice.fair for choice in select_configurations(rows)),
        **{m: _best(assess_significance(rows, m)) for m in ("acc", "fm")},
    }


def _best(found: Significance) -> dict[str, Any]:
    near = next(iter(found.nearest), None)
    p = math.nan if near is None else near.corrected
    return {
        "first": None if found.reference is None else found.reference.label,
        "won": found.won,
        "near": None if near is None else near.row.label,
        "shared": 0 if near is None else near.plain.n,
        "corrected": p if math.isfinite(p) else None,
    }
