"""Runs become a table: one row a method, mean and spread over seeds, compared seed by seed with a reference row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tmln.analysis.statistics import Comparison, Summary, compare, summarise

# metric: (heading, is a fraction shown in percent, more is better)
COLUMNS = {
    "acc": ("ACC % ↑", True, True),
    "fm": ("FM % ↓", True, False),
    "int": ("INT % ↓", True, False),
    "seconds": ("seconds", False, False),
}


@dataclass(frozen=True)
class Row:
    """One method on one benchmark: its metrics by seed, and what is missing."""

    benchmark: str
    label: str
    values: dict[str, dict[int, float]]  # metric -> seed -> value
    missing: tuple[int, ...] = ()
    diverged: tuple[int, ...] = ()
    oracles: tuple[str, ...] = ()
    summaries: dict[str, Summary] = field(default_factory=dict)

    def against(self, other: Row, metric: str) -> Comparison:
        """The paired difference to another row, seed by seed."""
        return compare(self.values.get(metric, {}), other.values.get(metric, {}))


def rows_of(results: Iterable[dict[str, Any]]) -> list[Row]:
    """One row for each configuration apart from its seed, in order of benchmark, then of mean accuracy."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    labels = label_methods(results := list(results))
    for result, label in zip(results, labels, strict=True):
        groups.setdefault((str(result["benchmark"]), label), []).append(result)
    seeds: dict[str, set[int]] = {}
    for (benchmark, _), members in groups.items():
        seeds.setdefault(benchmark, set()).update(int(r["seed"]) for r in members)
    rows = [_row(benchmark, label, members, seeds[benchmark]) for (benchmark, label), members in groups.items()]
    return sorted(rows, key=lambda row: (row.benchmark, -_sortable(row.summaries["acc"].mean), row.label))


def label_methods(results: Sequence[dict[str, Any]]) -> list[str]:
    """The method's name; where runs of one method on one benchmark differ, with the fields in which they do."""
    flat = [_flat({k: v for k, v in r["config"].items() if k != "seed"}) for r in results]
    labels = []
    for i, mine in enumerate(flat):
        kin = [
            other
            for other, result in zip(flat, results, strict=True)
            if (result["benchmark"], result["method"]) == (results[i]["benchmark"], results[i]["method"])
        ]
        differing = sorted(
            {key for other in kin for key in mine.keys() | other.keys() if mine.get(key) != other.get(key)}
        )
        shown = [f"{key.removeprefix('settings.')}={mine[key]}" for key in differing if key in mine]
        labels.append(" ".join([str(results[i]["method"]), *shown]))
    return labels


def best_rows(rows: Sequence[Row], metric: str) -> set[str]:
    """The labels of the best mean; the oracle, which sees all data at once, does not compete."""
    better = COLUMNS[metric][2]
    means = {
        row.label: row.summaries[metric].mean
        for row in rows
        if metric in row.summaries and not row.label.startswith("joint") and math.isfinite(row.summaries[metric].mean)
    }
    if not means:
        return set()
    top = (max if better else min)(means.values())
    return {label for label, mean in means.items() if mean == top}


def _row(benchmark: str, label: str, members: list[dict[str, Any]], seeds: set[int]) -> Row:
    good = [r for r in members if not r.get("diverged")]
    values: dict[str, dict[int, float]] = {}
    for result in good:
        found = {**result["metrics"], "seconds": result.get("seconds", math.nan)}
        for metric in COLUMNS:
            value = found.get(metric)
            if isinstance(value, (int, float)):
                values.setdefault(metric, {})[int(result["seed"])] = float(value)
    return Row(
        benchmark,
        label,
        values,
        missing=tuple(sorted(seeds - {int(r["seed"]) for r in members})),
        diverged=tuple(sorted(int(r["seed"]) for r in members if r.get("diverged"))),
        oracles=tuple(sorted({str(r.get("oracle", "none")) for r in good if "int" in r["metrics"]})),
        summaries={metric: summarise(list(values.get(metric, {}).values())) for metric in COLUMNS},
    )


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        found: dict[str, Any] = {}
        for key, item in value.items():
            found |= _flat(item, f"{prefix}.{key}" if prefix else str(key))
        return found
    return {prefix: str(value)}


def _sortable(value: float) -> float:
    return value if math.isfinite(value) else -math.inf
