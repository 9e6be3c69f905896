"""Write rows and fronts as tables for :mod:`tmln.analysis.text_table` and as records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tmln.analysis.fronts import Front, Fronts
from tmln.analysis.notes import FRONT, UNLEARNED
from tmln.analysis.rows import Row, columns_of
from tmln.analysis.selection import find_unlearned
from tmln.analysis.significance import TestName, assess_significance
from tmln.analysis.statistics import Summary
from tmln.analysis.text_table import Strong
from tmln.metrics import Metric, metric_of

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


# -- rows --


def named_row(rows: Sequence[Row], name: str | None) -> Row | None:
    """Return the row with this label, None without a name; raise if there is none."""
    found = next((row for row in rows if row.label == name), None)
    if name is not None and found is None:
        raise ValueError(f"no row is called {name!r}; there are {', '.join(row.label for row in rows)}")
    return found


def row_lines(rows: Sequence[Row], metrics: Sequence[str] | None = None, test: TestName = "t") -> Lines:
    """Return heading and rows as text; values not significantly below the best are strong."""
    columns = columns_of(rows, metrics)
    lines = [["method", "n", *(metric_of(m).title for m in columns), "ACC 95%"]]
    strong = {metric: assess_significance(rows, metric, test).strong for metric in columns if metric_of(metric).contest}
    lazy = find_unlearned(rows)
    for row in rows:
        cells = []
        for metric in columns:
            text = cell(row.summary(metric), metric_of(metric))
            cells.append(Strong(text) if row.label in strong.get(metric, ()) else text)
        label = f"{row.label} {UNLEARNED}" if row.label in lazy else row.label
        lines.append([label, str(row.summary("acc").n), *cells, interval(row.summary("acc"))])
    return lines


# -- fronts --


def configuration_lines(fronts: Fronts) -> Lines:
    """Return heading and a line per configuration; those on the front of all are strong."""
    x, y = metric_of(fronts.x), metric_of(fronts.y)
    lines = [["configuration", "n", x.title, y.title, "front"]]
    for number, point in enumerate(fronts.points):
        on = _on(fronts, number)
        line = [point.label, str(min(point.x.n, point.y.n)), cell(point.x, x), cell(point.y, y), on or "-"]
        lines.append([Strong(text) for text in line] if on == "all" else line)
    return lines


def volume_lines(fronts: Fronts) -> Lines:
    """Return heading, a line per method and one for all; the largest hypervolume is strong."""
    lines = [["method", "configurations", "on its front", "on the skyline", "hypervolume"]]
    largest = max((f.hypervolume for f in fronts.methods.values() if f.members), default=math.nan)
    for method, own in fronts.methods.items():
        count = sum(point.method == method for point in fronts.points)
        shared = len({*own.members} & {*fronts.skyline.members})
        line = [method, str(count), str(len(own.members)), str(shared), _volume(own)]
        lines.append([*line[:-1], Strong(line[-1])] if own.hypervolume == largest else line)
    total = len(fronts.skyline.members)
    return [*lines, ["all", str(len(fronts.points)), "-", str(total), _volume(fronts.skyline)]]


def volume_notes(fronts: Fronts) -> list[str]:
    """Return the notes to fronts and hypervolumes."""
    ideal, worst = (
        ", ".join(
            f"{m.heading} {100 * end:.0f} %" if m.percent else f"{end:{m.digits}} {m.heading}"
            for m, end in zip((metric_of(fronts.x), metric_of(fronts.y)), ends, strict=True)
        )
        for ends in (fronts.ideal, fronts.reference)
    )
    share = f"the share dominated of all between the ideal ({ideal}) and the worst ({worst})"
    return [FRONT, f"hypervolume: {share}; 1 is all of it", *fronts.notes]


def front_records(every: Sequence[Fronts]) -> Records:
    """Return one flat record per configuration, for CSV."""
    return [
        {
            "benchmark": fronts.benchmark,
            "method": point.method,
            "settings": point.settings,
            **point.x.parts(f"{fronts.x}_"),
            **point.y.parts(f"{fronts.y}_"),
            "own_front": int(_on(fronts, number) != ""),
            "skyline": int(_on(fronts, number) == "all"),
            "method_hypervolume": fronts.methods[point.method].hypervolume,
        }
        for fronts in every
        for number, point in enumerate(fronts.points)
    ]


def front_tree(every: Sequence[Fronts]) -> Records:
    """Return nested records for JSON; fronts are labels of configurations."""

    def members(fronts: Fronts, found: Front) -> dict[str, Any]:
        return {"hypervolume": found.hypervolume, "front": [fronts.points[n].label for n in found.members]}

    return [
        {
            "benchmark": fronts.benchmark,
            "x": fronts.x,
            "y": fronts.y,
            "reference": fronts.reference,
            "ideal": fronts.ideal,
            "skyline": members(fronts, fronts.skyline),
            "methods": {method: members(fronts, found) for method, found in fronts.methods.items()},
            "configurations": [
                {"method": p.method, "settings": p.settings, fronts.x: p.x.parts(), fronts.y: p.y.parts()}
                for p in fronts.points
            ],
            "notes": fronts.notes,
        }
        for fronts in every
    ]


def _on(fronts: Fronts, number: int) -> str:
    if number in fronts.skyline.members:
        return "all"
    return "own" if number in fronts.methods[fronts.points[number].method].members else ""


def _volume(found: Front) -> str:
    return "-" if math.isnan(found.hypervolume) else f"{found.hypervolume:.4f}"
