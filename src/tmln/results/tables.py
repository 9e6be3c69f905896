"""A table of rows as text for a terminal, Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tmln.results.rows import NO_CONTEST, Row, best_rows, columns_of, metric_of
from tmln.results.statistics import Summary
from tmln.results.textgrid import Strong, grid_csv

if TYPE_CHECKING:
    pass

REFERENCE = {  # each at the benchmark's own rate, whatever that of the row: see tmln.lab.oracle
    "prefix": "joint training on tasks 1..k under the same seed at the benchmark's own lr",
    "final": "the shortcut oracle, one joint model of all tasks at the benchmark's own lr",
    "independent": "training afresh on task k alone under the same seed at the benchmark's own lr",
}


def cell(summary: Summary, percent: bool, digits: str = ".1f") -> str:
    """``94.9 ± 1.0``, the sample deviation; a dash where there is nothing. ``digits`` are of what is no percentage."""
    scale = 100.0 if percent else 1.0
    if not summary.n or math.isnan(summary.mean):
        return "-"
    if not percent:
        return f"{summary.mean:{digits}}"
    deviation = f" ± {scale * summary.std:.1f}" if summary.n > 1 else ""
    return f"{scale * summary.mean:.1f}{deviation}"


def interval(summary: Summary) -> str:
    if math.isnan(summary.low):
        return "-"
    return f"[{100 * summary.low:.1f}, {100 * summary.high:.1f}]"


def notes(rows: Sequence[Row], reference: Row | None = None) -> list[str]:
    """What a reader must know before trusting a table."""
    said = ["n seeds: mean ± sample standard deviation, 95% t-interval, best in bold (joint aside)"]
    if reference is not None:
        said.append(f"p: paired t-test of ACC against {reference.label}, seed by seed")
    if any(row.summary("acc").cut for row in rows):
        said.append("an interval that would leave 0 to 100 % ends there: it covers the mean as often as before")
    return [*said, *rates(rows), *gaps(rows)]


def rates(rows: Sequence[Row]) -> list[str]:
    """That rows at one eta are not at one rate (eta/lambda), where it is so."""
    groups: dict[float, list[str]] = {}
    for row in rows:
        if row.competes and not math.isnan(row.rate):
            groups.setdefault(row.rate, []).append(row.label)
    if len(groups) < 2:
        return []
    listed = "; ".join(f"{rate:.3g}: {', '.join(labels)}" for rate, labels in sorted(groups.items()))
    return [f"rows start at different rates (eta/lambda), and may differ for that alone: {listed}"]


def gaps(rows: Sequence[Row]) -> list[str]:
    """What is missing, was left out, or stands on a single seed."""
    said = []
    for row in rows:
        if row.missing:
            said.append(f"{row.label}: seeds {', '.join(map(str, row.missing))} are missing")
        if row.diverged:
            said.append(f"{row.label}: seeds {', '.join(map(str, row.diverged))} diverged and are left out")
    single = [row.label for row in rows if row.summary("acc").n == 1]
    said += [f"{who}: one seed only, so no spread and no interval" for who in _folded(single, len(rows))]
    kinds = {oracle for row in rows for oracle in row.oracles}
    for oracle in (name for name in REFERENCE if name in kinds):
        of = "" if len(kinds) == 1 else f": {', '.join(row.label for row in rows if oracle in row.oracles)}"
        said.append(f"INT is against {REFERENCE[oracle]}{of}")
    if not any(row.oracles for row in rows):
        said.append("INT is not there: no joint reference has run (--oracle prefix)")
    return said


def _folded(labels: list[str], rows: int) -> list[str]:
    return ["every row"] if len(labels) == rows > 1 else labels


def reference_row(rows: Sequence[Row], reference: str | None) -> Row | None:
    """The row that others are compared with; the best one unless named."""
    if reference is None:
        best = best_rows(rows, "acc")
        return next((row for row in rows if row.label in best), None)
    found = next((row for row in rows if row.label == reference), None)
    if found is None:
        raise ValueError(f"no row is called {reference!r}; there are {', '.join(row.label for row in rows)}")
    return found


def grid(rows: Sequence[Row], reference: Row | None, metrics: Sequence[str] | None = None) -> list[list[str]]:
    """Heading and rows as text; the best mean of each metric stands out."""
    columns = columns_of(rows, metrics)
    lines = [["method", "n", *(metric_of(m).title for m in columns), "ACC 95%", "p"]]
    best = {metric: best_rows(rows, metric) for metric in columns if metric not in NO_CONTEST}
    for row in rows:
        cells = []
        for metric in columns:
            text = cell(row.summary(metric), metric_of(metric).percent, metric_of(metric).digits)
            cells.append(Strong(text) if row.label in best.get(metric, ()) else text)
        p = "-"
        if reference is not None and row is not reference:
            value = row.against(reference, "acc").p_value
            p = "-" if math.isnan(value) else f"{value:.3f}" if value >= 0.001 else "<0.001"
        lines.append([row.label, str(row.summary("acc").n), *cells, interval(row.summary("acc")), p])
    return lines


def as_csv(rows: Sequence[Row], metrics: Sequence[str] | None = None) -> str:
    """Every number whole, not as shown: n, mean, deviation and interval of each metric."""
    columns = columns_of(rows, metrics)
    parts = ("n", "mean", "std", "low", "high")
    lines = [["benchmark", "method", *(f"{m}_{part}" for m in columns for part in parts)]]
    for row in rows:
        values = [getattr(row.summary(m), part) for m in columns for part in parts]
        lines.append([row.benchmark, row.label, *("" if math.isnan(v) else str(v) for v in values)])
    return grid_csv(lines)


def as_json(rows: Sequence[Row], metrics: Sequence[str] | None = None) -> str:
    columns = columns_of(rows, metrics)

    def plain(value: float) -> float | None:
        return None if math.isnan(value) else value

    return json.dumps(
        [
            {
                "benchmark": row.benchmark,
                "method": row.label,
                "missing": row.missing,
                "diverged": row.diverged,
                "metrics": {
                    m: {"n": s.n, **{part: plain(getattr(s, part)) for part in ("mean", "std", "low", "high")}}
                    for m, s in ((name, row.summary(name)) for name in columns)
                },
            }
            for row in rows
        ],
        indent=1,
    )
