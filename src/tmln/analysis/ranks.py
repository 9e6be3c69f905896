"""Compare methods over several benchmarks: mean ranks, Friedman's test, Nemenyi's difference.

Demsar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7 (2006). A method has
one row in each table, selected as in :mod:`tmln.analysis.selection`; only methods that are in all
tables have ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tmln.analysis.rows import Row, group_by_table
from tmln.analysis.selection import select_configurations
from tmln.analysis.statistics import chi_square_tail, mean, studentized_range_quantile
from tmln.analysis.summary_text import p_text
from tmln.analysis.tables import cell
from tmln.metrics import metric_of

LEVEL = 0.05


@dataclass(frozen=True)
class MethodRanks:
    """Rows by method and table, and ranks of methods in every table (1 is best), best first."""

    metric: str
    tables: tuple[str, ...]
    cells: Mapping[str, Mapping[str, Row]]
    ranks: Mapping[str, float]
    friedman: float  # the p-value that all ranks are by chance
    critical: float  # two mean ranks that are further apart differ
    places: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # ranks by method and table

    @property
    def cliques(self) -> list[tuple[str, ...]]:
        """Return the largest groups, in order of rank, of which no two differ."""
        names = list(self.ranks)
        found: list[tuple[str, ...]] = []
        for at, first in enumerate(names):
            group = tuple(n for n in names[at:] if self.ranks[n] - self.ranks[first] <= self.critical)
            if len(group) > 1 and not any(set(group) <= set(other) for other in found):
                found.append(group)
        return found


def select_by_table(rows: Sequence[Row], metric: str = "acc") -> tuple[list[str], dict[str, dict[str, Row]]]:
    """Return the tables, and each method's row in every table where it can be ranked."""
    cells: dict[str, dict[str, Row]] = {}
    tables = group_by_table(rows)
    for name, mine in tables.items():
        for choice in select_configurations(mine):
            if choice.fair and math.isfinite(choice.row.summary(metric).mean):
                cells.setdefault(choice.row.contender, {})[name] = choice.row
    return list(tables), cells


def explain_missing_ranks(rows: Sequence[Row], metric: str = "acc") -> str:
    """Return which methods each table has: ``cifar10 (er, tmln), pacs (naive)``."""
    tables, cells = select_by_table(rows, metric)
    mine = {name: sorted(method for method, there in cells.items() if name in there) for name in tables}
    return ", ".join(f"{name} ({', '.join(methods) or 'none'})" for name, methods in mine.items()) or "no runs"


def rank_methods(rows: Sequence[Row], metric: str = "acc") -> MethodRanks | None:
    """Compare rows of several tables; None without two tables and two methods that both have."""
    tables, cells = select_by_table(rows, metric)
    common = [method for method, mine in cells.items() if len(mine) == len(tables)]
    if len(tables) < 2 or len(common) < 2:
        return None
    sign = -1.0 if metric_of(metric).more_is_better else 1.0
    costs = [[sign * cells[method][table].summary(metric).mean for method in common] for table in tables]
    ranked = [ranks(row) for row in costs]
    means = {method: mean(row[k] for row in ranked) for k, method in enumerate(common)}
    order = sorted(cells, key=lambda method: (means.get(method, math.inf), method))
    return MethodRanks(
        metric,
        tuple(tables),
        {method: cells[method] for method in order},
        {method: means[method] for method in order if method in means},
        friedman(ranked),
        critical_difference(len(common), len(tables)),
        {method: dict(zip(tables, (row[k] for row in ranked), strict=True)) for k, method in enumerate(common)},
    )


def ranks(costs: Sequence[float]) -> list[float]:
    """Return ranks, 1 for the least; equal values share the mean of their ranks.

    >>> ranks([0.3, 0.1, 0.3])
    [2.5, 1.0, 2.5]
    """
    return [sum(other < one for other in costs) + (sum(other == one for other in costs) + 1) / 2 for one in costs]


def friedman(ranked: Sequence[Sequence[float]]) -> float:
    """Return Friedman's p-value, corrected for ties; it is conservative for few tables.

    P(chi-square with k - 1 degrees of freedom is this large), where
    chi^2 = 12 / (n k (k + 1)) sum_j R_j^2 - 3 n (k + 1), over 1 - sum (t^3 - t) / (n k (k^2 - 1)).
    """
    n, k = len(ranked), len(ranked[0])
    sums = [math.fsum(row[j] for row in ranked) for j in range(k)]
    statistic = 12 / (n * k * (k + 1)) * math.fsum(total**2 for total in sums) - 3 * n * (k + 1)
    shared = sum(row.count(rank) ** 3 - row.count(rank) for row in map(list, ranked) for rank in set(row))
    left = 1 - shared / (n * k * (k * k - 1))
    return chi_square_tail(statistic / left, k - 1) if left > 0 else 1.0


def critical_difference(methods: int, tables: int) -> float:
    """Return Nemenyi's q sqrt(k (k + 1) / (6 n)), q of the studentized range over sqrt(2)."""
    q = studentized_range_quantile(1 - LEVEL, methods) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * tables))


def rank_lines(found: MethodRanks) -> list[list[str]]:
    """Return heading and a line per method: means by table and the mean rank."""
    metric = metric_of(found.metric)
    lines = [["method", *found.tables, "mean rank"]]
    for method, mine in found.cells.items():
        rank = found.ranks.get(method, math.nan)
        texts = [cell(mine[table].summary(found.metric), metric) if table in mine else "-" for table in found.tables]
        lines.append([method, *texts, "-" if math.isnan(rank) else f"{rank:.2f}"])
    return lines


def rank_notes(found: MethodRanks) -> list[str]:
    """Return what the ranks say: no difference, or the groups that do not differ significantly."""
    metric, count = metric_of(found.metric).title, len(found.tables)
    test = f"Friedman p {p_text(found.friedman)}"
    notes = [f"{metric}; ranks are over {count} tables, of methods that are in all of them, 1 is best"]
    if found.friedman >= LEVEL:
        return [*notes, f"over {count} tables no method ranks above another: {test}"]
    groups = "; ".join(" = ".join(group) for group in found.cliques) or "none"
    return [
        *notes,
        f"ranks differ over {count} tables: {test}; Nemenyi's critical difference is {found.critical:.2f}; "
        f"groups that do not differ significantly: {groups}",
    ]


def rank_records(found: MethodRanks) -> list[Mapping[str, Any]]:
    """Return one record per method and table."""
    return [
        {
            "method": method,
            "benchmark": table,
            **row.summary(found.metric).parts(f"{found.metric}_"),
            "mean_rank": found.ranks.get(method),
            "friedman_p": found.friedman,
            "critical_difference": found.critical,
        }
        for method, mine in found.cells.items()
        for table, row in mine.items()
    ]
