"""Methods over several tables as lines of text, records and words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tmln.analysis.across_benchmarks import LEVEL, Across
from tmln.analysis.summary_text import p_text
from tmln.analysis.tables import cell
from tmln.metrics import metric_of


def across_lines(found: Across) -> list[list[str]]:
    """Heading, and a line for each method: its mean in each table and its mean rank; a dash where it is not."""
    metric = metric_of(found.metric)
    lines = [["method", *found.tables, "mean rank"]]
    for method, mine in found.cells.items():
        rank = found.ranks.get(method, math.nan)
        texts = [cell(mine[table].summary(found.metric), metric) if table in mine else "-" for table in found.tables]
        lines.append([method, *texts, "-" if math.isnan(rank) else f"{rank:.2f}"])
    return lines


def across_notes(found: Across) -> list[str]:
    """What the ranks say: that they are by chance, or which methods they cannot tell apart."""
    metric, count = metric_of(found.metric).title, len(found.tables)
    test = f"Friedman p {p_text(found.friedman)}"
    said = [f"{metric}; ranks are over {count} tables, of methods that are in all of them, 1 is best"]
    if found.friedman >= LEVEL:
        return [*said, f"over {count} tables no method ranks above another: {test}"]
    groups = "; ".join(" = ".join(group) for group in found.cliques) or "none"
    return [
        *said,
        f"ranks differ over {count} tables: {test}; Nemenyi's critical difference is {found.critical:.2f}; within it, "
        f"not told apart, are: {groups}",
    ]


def across_records(found: Across) -> list[Mapping[str, Any]]:
    """A record for each method and table."""
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
