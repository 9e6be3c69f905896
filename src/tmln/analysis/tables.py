"""Write rows, and their differences to a reference row, as tables and as records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tmln.analysis.notes import UNLEARNED
from tmln.analysis.rows import Row, columns_of, group_by_table
from tmln.analysis.selection import find_unlearned
from tmln.analysis.significance import FEWEST, PairwiseTest, Significance, TestName, assess_significance
from tmln.analysis.statistics import Summary
from tmln.analysis.text_table import Strong
from tmln.metrics import METRICS, Metric, metric_of
from tmln.suggest import did_you_mean

Lines = list[list[str]]
Records = list[Mapping[str, Any]]


def cell(summary: Summary, metric: Metric, spread: bool = False) -> str:
    """Write ``94.9 ± 1.0``, mean and sample deviation; a dash where there is no value.

    Metrics that are no fractions have their deviation only with ``spread``, and never at
    significant digits (``.3g``).
    """
    if not summary.n or math.isnan(summary.mean):
        return "-"
    if not metric.percent and (metric.digits.endswith("g") or not spread):
        return f"{summary.mean:{metric.digits}}"
    unit = 100 if metric.percent else 1
    return f"{unit * summary.mean:.1f}" + (f" ± {unit * summary.std:.1f}" if summary.n > 1 else "")


def interval(summary: Summary, metric: Metric | None = None) -> str:
    """Write ``[81.2, 84.0]``, in percent for fractions; a dash for a single seed."""
    unit = 100 if metric is None or metric.percent else 1
    return "-" if math.isnan(summary.low) else f"[{unit * summary.low:.1f}, {unit * summary.high:.1f}]"


def find_row_by_label(rows: Sequence[Row], name: str | None) -> Row | None:
    """Return the row with this label, None without a name; raise if there is none."""
    found = next((row for row in rows if row.label == name), None)
    if name is not None and found is None:
        raise ValueError(f"no row is called {name!r}; there are {', '.join(row.label for row in rows)}")
    return found


def row_lines(rows: Sequence[Row], metrics: Sequence[str] | None = None, test: TestName = "t") -> Lines:
    """Return heading and rows as text; values not significantly below the best are strong."""
    columns = columns_of(rows, metrics)
    lines = [["method", "n", *(metric_of(m).title for m in columns), "ACC 95%"]]
    strong = {
        metric: assess_significance(rows, metric, test).bold_labels for metric in columns if metric_of(metric).is_ranked
    }
    unlearned = find_unlearned(rows)
    for row in rows:
        cells = []
        for metric in columns:
            text = cell(row.summary(metric), metric_of(metric))
            cells.append(Strong(text) if row.label in strong.get(metric, ()) else text)
        label = f"{row.label} {UNLEARNED}" if row.label in unlearned else row.label
        lines.append([label, str(row.summary("acc").n), *cells, interval(row.summary("acc"))])
    return lines


HEADING = ("method", "shared", "Δ ACC", "corrected 95%", "p", "corrected p", "seeds needed", "seconds", "MiB")


def difference_lines(rows: Sequence[Row], found: Significance) -> list[list[str]]:
    """Return heading, the reference, and the other rows; significant p-values are strong."""
    lines, unlearned = [list(HEADING)], find_unlearned(rows)
    for row in rows:
        label = f"{row.label} {UNLEARNED}" if row.label in unlearned else row.label
        pair = found.of(row)
        price = [_number(row.summary("seconds").mean), _number(row.summary("memory").mean)]
        if pair is None:
            lines.append([label, str(row.summary("acc").n), "reference", "-", "-", "-", "-", *price])
            continue
        corrected = p_cell(pair.corrected)
        lines.append(
            [
                label,
                str(pair.plain.n),
                points(pair.plain.mean_difference),
                _interval(pair),
                p_cell(pair.p),
                Strong(corrected) if pair.is_significant else corrected,
                _format_needed(pair),
                *price,
            ]
        )
    return lines


OTHERS = ("n", "interval", "shared", "delta", "delta_interval", "p", "holm", "seeds_needed")


def column_lines(rows: Sequence[Row], found: Significance, columns: Sequence[str]) -> list[list[str]]:
    """Return one table of the requested columns: metrics, and those of :data:`OTHERS`."""
    metrics = [name for name in columns if name not in (*OTHERS, "method")]
    if unknown := [name for name in metrics if name not in {m for row in rows for m in row.values} | set(METRICS)]:
        known = [*OTHERS, *columns_of(rows)]
        hint = did_you_mean(unknown[0], known)
        raise ValueError(f"unknown column {unknown[0]!r}{hint} (columns: any metric, and {', '.join(OTHERS)})")
    places = ["method", "n", *metrics, "interval", "method", *OTHERS[2:], "seconds alone", "memory alone"]
    joined = [
        dict(zip(places, [*first, *second], strict=True))
        for first, second in zip(row_lines(rows, metrics, found.test), difference_lines(rows, found), strict=True)
    ]
    wanted = list(dict.fromkeys(["method", *columns]))
    return [[line[name] for name in wanted] for line in joined]


def row_records(
    rows: Sequence[Row], metrics: Sequence[str] | None = None, test: TestName = "t", reference: str | None = None
) -> list[Mapping[str, Any]]:
    """Return flat records for CSV: summaries and values by seed of each metric, and the test."""
    columns = columns_of(rows, metrics)
    return [
        {
            "benchmark": row.title,
            "method": row.label,
            **{key: value for m in columns for key, value in row.summary(m).parts(f"{m}_").items()},
            **_describe_comparison(found, row),
            **{f"{m}_seed_{seed}": value for m in columns for seed, value in _by_seed(row, m).items()},
        }
        for row, found in _with_significance(rows, test, reference)
    ]


def row_tree(
    rows: Sequence[Row], metrics: Sequence[str] | None = None, test: TestName = "t", reference: str | None = None
) -> list[Mapping[str, Any]]:
    """Return nested records for JSON, with missing seeds."""
    columns = columns_of(rows, metrics)
    return [
        {
            "benchmark": row.title,
            "method": row.label,
            "missing": row.missing,
            "diverged": row.diverged,
            "not_learned": find_unlearned(group_by_table(rows)[row.title]).get(row.label),
            "metrics": {m: {**row.summary(m).parts(), "values": _by_seed(row, m)} for m in columns},
            "compared": _describe_comparison(found, row),
        }
        for row, found in _with_significance(rows, test, reference)
    ]


def points(difference: float) -> str:
    """Return a difference of accuracies in percentage points: ``+1.2``."""
    return "-" if math.isnan(difference) else f"{100 * difference:+.1f}"


def p_cell(p: float) -> str:
    """Return ``0.012`` or ``<0.001``; a dash where no test applies."""
    return "-" if math.isnan(p) else f"{p:.3f}" if p >= 0.001 else "<0.001"


def _interval(pair: PairwiseTest) -> str:
    return "-" if math.isnan(pair.low) else f"[{100 * pair.low:+.1f}, {100 * pair.high:+.1f}]"


def _format_needed(pair: PairwiseTest) -> str:
    if pair.is_significant:
        return "significant"
    if pair.needed is None:
        return "-" if pair.plain.n < FEWEST or math.isnan(pair.p) or pair.p == 1.0 else ">1000"
    return str(max(pair.needed, FEWEST))


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"


def _by_seed(row: Row, metric: str) -> dict[int, float]:
    return dict(sorted(row.values.get(metric, {}).items()))


def _describe_comparison(found: Significance, row: Row) -> dict[str, Any]:
    """Return the row's ACC minus the reference's, with the corrected interval and p-values."""
    pair = found.of(row)
    reference = None if found.reference is None else found.reference.label
    numbers: dict[str, Any] = dict.fromkeys(("shared", "difference", "low", "high", "p", "p_holm", "seeds_needed"))
    if pair is not None:
        numbers = {
            "shared": pair.plain.n,
            "difference": pair.plain.mean_difference,
            "low": pair.low,
            "high": pair.high,
            "p": pair.p,
            "p_holm": pair.corrected,
            "seeds_needed": pair.needed,
        }
    significant = None if pair is None else pair.is_significant
    return {
        "reference": reference,
        "test": found.test,
        **numbers,
        "significant": significant,
        "peak_mib": row.summary("memory").mean,
    }


def _with_significance(rows: Sequence[Row], test: TestName, reference: str | None) -> list[tuple[Row, Significance]]:
    """Return each row with its table's tests; a named row is the reference where it exists."""
    tables = {}
    for name, mine in group_by_table(rows).items():
        named = next((row for row in mine if row.label == reference), None)
        tables[name] = assess_significance(mine, "acc", test, named)
    return [(row, tables[row.title]) for row in rows]
