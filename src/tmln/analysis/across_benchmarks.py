"""Methods over several tables: accuracies side by side, mean ranks, Friedman's test, Nemenyi's critical difference.

Demsar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7 (2006). A method stands with one row in
each table, as in the sentence (:mod:`tmln.analysis.selection`); ranks need methods that are in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tmln.analysis.distributions import chi_square_tail, studentized_range_quantile
from tmln.analysis.rows import Row, comparable
from tmln.analysis.selection import select_configurations
from tmln.analysis.statistics import mean
from tmln.metrics import metric_of

LEVEL = 0.05


@dataclass(frozen=True)
class Across:
    """``cells`` are by method and table; ``ranks`` of methods that are in every table, 1 is best, from the best on."""

    metric: str
    tables: tuple[str, ...]
    cells: Mapping[str, Mapping[str, Row]]
    ranks: Mapping[str, float]
    friedman: float  # the p-value that all ranks are by chance
    critical: float  # two mean ranks that are further apart differ
    places: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # ranks by method and table

    @property
    def cliques(self) -> list[tuple[str, ...]]:
        """The largest groups, in the order of ranks, of which no two differ."""
        names = list(self.ranks)
        found: list[tuple[str, ...]] = []
        for at, first in enumerate(names):
            group = tuple(n for n in names[at:] if self.ranks[n] - self.ranks[first] <= self.critical)
            if len(group) > 1 and not any(set(group) <= set(other) for other in found):
                found.append(group)
        return found


def side_by_side(rows: Sequence[Row], metric: str = "acc") -> tuple[list[str], dict[str, dict[str, Row]]]:
    """The tables, and of each method the row it stands with in each of them that it can be ranked in."""
    cells: dict[str, dict[str, Row]] = {}
    tables = comparable(rows)
    for name, mine in tables.items():
        for choice in select_configurations(mine):
            if choice.fair and math.isfinite(choice.row.summary(metric).mean):
                cells.setdefault(choice.row.contender, {})[name] = choice.row
    return list(tables), cells


def why_no_ranks(rows: Sequence[Row], metric: str = "acc") -> str:
    """What there is instead: ``cifar10 (er, tmln), pacs (naive)``."""
    tables, cells = side_by_side(rows, metric)
    mine = {name: sorted(method for method, there in cells.items() if name in there) for name in tables}
    return ", ".join(f"{name} ({', '.join(methods) or 'none'})" for name, methods in mine.items()) or "no runs"


def across(rows: Sequence[Row], metric: str = "acc") -> Across | None:
    """Of rows of several tables; None where there are not two tables and two methods that both have."""
    tables, cells = side_by_side(rows, metric)
    common = [method for method, mine in cells.items() if len(mine) == len(tables)]
    if len(tables) < 2 or len(common) < 2:
        return None
    sign = -1.0 if metric_of(metric).more_is_better else 1.0
    costs = [[sign * cells[method][table].summary(metric).mean for method in common] for table in tables]
    ranked = [ranks(row) for row in costs]
    means = {method: mean(row[k] for row in ranked) for k, method in enumerate(common)}
    order = sorted(cells, key=lambda method: (means.get(method, math.inf), method))
    return Across(
        metric,
        tuple(tables),
        {method: cells[method] for method in order},
        {method: means[method] for method in order if method in means},
        friedman(ranked),
        critical_difference(len(common), len(tables)),
        {method: dict(zip(tables, (row[k] for row in ranked), strict=True)) for k, method in enumerate(common)},
    )


def ranks(costs: Sequence[float]) -> list[float]:
    """1 for the least; equal ones share the mean of their places.

    >>> ranks([0.3, 0.1, 0.3])
    [2.5, 1.0, 2.5]
    """
    return [sum(other < one for other in costs) + (sum(other == one for other in costs) + 1) / 2 for one in costs]


def friedman(ranked: Sequence[Sequence[float]]) -> float:
    """P(chi-square with k - 1 degrees of freedom is this large), corrected for equal ranks; cautious for few tables.

    chi^2 = 12 / (n k (k + 1)) sum_j R_j^2 - 3 n (k + 1), over 1 - sum (t^3 - t) / (n k (k^2 - 1)).
    """
    n, k = len(ranked), len(ranked[0])
    sums = [math.fsum(row[j] for row in ranked) for j in range(k)]
    statistic = 12 / (n * k * (k + 1)) * math.fsum(total**2 for total in sums) - 3 * n * (k + 1)
    shared = sum(row.count(rank) ** 3 - row.count(rank) for row in map(list, ranked) for rank in set(row))
    left = 1 - shared / (n * k * (k * k - 1))
    return chi_square_tail(statistic / left, k - 1) if left > 0 else 1.0


def critical_difference(methods: int, tables: int) -> float:
    """Nemenyi's: q sqrt(k (k + 1) / (6 n)), with q of the studentized range over sqrt(2)."""
    q = studentized_range_quantile(1 - LEVEL, methods) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * tables))
