"""Find Pareto fronts of two metrics and their hypervolumes, and write them as tables.

A point dominates another if it is at least as good in both metrics and better in one (the paper's
appendix D.1). Equal points do not dominate each other; points that are not finite are on no front.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tmln.analysis.notes import FRONT, front_notes
from tmln.analysis.rows import Row, columns_of
from tmln.analysis.selection import find_unselected
from tmln.analysis.statistics import Summary, summarise
from tmln.analysis.tables import Lines, Records, cell
from tmln.analysis.text_table import Strong
from tmln.metrics import metric_of

Pair = tuple[float, float]
MINIMISE = (False, False)  # for each of the two metrics: is more better?


def front(points: Sequence[Pair], more_is_better: tuple[bool, bool] = MINIMISE) -> list[int]:
    """Return the numbers of the points that no other dominates, best in the first metric first."""
    costs = {
        number: cost for number, cost in enumerate(_costs(points, more_is_better)) if all(map(math.isfinite, cost))
    }
    found: list[int] = []
    lowest, last = math.inf, (math.nan, math.nan)
    for number in sorted(costs, key=lambda number: (costs[number], number)):
        if costs[number][1] < lowest or costs[number] == last:
            found.append(number)
            lowest, last = costs[number][1], costs[number]
    return found


def hypervolume(points: Sequence[Pair], reference: Pair, more_is_better: tuple[bool, bool] = MINIMISE) -> float:
    """Return the area that the points dominate up to the reference.

    >>> hypervolume([(0.25, 0.5), (0.5, 0.25)], reference=(1.0, 1.0))
    0.5
    """
    if not all(map(math.isfinite, reference)):
        raise ValueError(f"the reference of a hypervolume is two finite numbers, not {reference}")
    (right, top) = _costs([reference], more_is_better)[0]
    costs = _costs(points, more_is_better)
    area = 0.0
    for number in front(points, more_is_better):
        x, y = costs[number]
        if x < right and y < top:
            area += (right - x) * (top - y)
            top = y
    return area


@dataclass(frozen=True)
class Point:
    """A configuration: means of the two metrics over the seeds that have both."""

    method: str
    settings: str  # in which it differs from the method's other configurations
    x: Summary
    y: Summary
    passed_over: bool = False  # for another one of the method, which was chosen on validation data

    @property
    def at(self) -> Pair:
        """Return the two means."""
        return self.x.mean, self.y.mean

    @property
    def label(self) -> str:
        """Return ``tmln step.damping=0.2``."""
        return f"{self.method} {self.settings}".strip()


@dataclass(frozen=True)
class Front:
    """Numbers of the points on a front, and its hypervolume; NaN without a finite point.

    The hypervolume is the share of the space between the ideal and the worst of both metrics that
    the front dominates, from 0 to 1. FM and INT range from -1 to 1, so FM = INT = 0 is a quarter.
    """

    members: tuple[int, ...]
    hypervolume: float


@dataclass(frozen=True)
class Fronts:
    """All configurations of a table, each method's front, and the front of all methods.

    The last contains, of a method with validation data, only the configuration chosen on them.
    """

    benchmark: str
    x: str
    y: str
    points: tuple[Point, ...]
    methods: Mapping[str, Front]
    skyline: Front
    reference: Pair  # the worst of each metric
    ideal: Pair
    notes: tuple[str, ...]


def fronts_of(rows: Iterable[Row], x: str = "int", y: str = "fm") -> Fronts:
    """Return the fronts of one benchmark's rows; references of INT do not take part."""
    rows = list(rows)
    if x == y:
        raise ValueError(f"a front needs two different metrics, not {x!r} twice")
    columns_of(rows, [x, y])  # refuses what is no metric
    if len(benchmarks := {row.title for row in rows}) != 1:
        raise ValueError(f"fronts are of one benchmark at a time, not of {', '.join(sorted(benchmarks)) or 'nothing'}")
    aside = {row.label for row in find_unselected(rows)}
    points = tuple(sorted((_point(row, x, y, row.label in aside) for row in rows if row.competes), key=_order))
    better = (metric_of(x).more_is_better, metric_of(y).more_is_better)
    (worst_x, ideal_x), (worst_y, ideal_y) = (
        _ends(x, [point.x.mean for point in points]),
        _ends(y, [point.y.mean for point in points]),
    )
    reference, ideal = (worst_x, worst_y), (ideal_x, ideal_y)
    whole = abs(ideal_x - worst_x) * abs(ideal_y - worst_y)

    def among(numbers: Sequence[int]) -> Front:
        at = [points[number].at for number in numbers]
        members = tuple(numbers[found] for found in front(at, better))
        return Front(members, hypervolume(at, reference, better) / whole if members and whole else math.nan)

    names = list(dict.fromkeys(point.method for point in points))
    methods = {name: among([n for n, point in enumerate(points) if point.method == name]) for name in names}
    skyline = among([number for number, point in enumerate(points) if not point.passed_over])
    notes = tuple(front_notes(rows, _lacking(points, (x, y)), (x, y)))
    return Fronts(rows[0].title, x, y, points, methods, skyline, reference, ideal, notes)


def _point(row: Row, x: str, y: str, passed_over: bool) -> Point:
    first, second = row.values.get(x, {}), row.values.get(y, {})
    both = [s for s in sorted(first.keys() & second.keys()) if math.isfinite(first[s]) and math.isfinite(second[s])]
    if len(both) == len(first) == len(second):
        return Point(row.method, row.settings, row.summary(x), row.summary(y), passed_over)
    if both:
        first, second = ({seed: values[seed] for seed in both} for values in (first, second))
    return Point(
        row.method,
        row.settings,
        summarise(first.values(), within=metric_of(x).within),
        summarise(second.values(), within=metric_of(y).within),
        passed_over,
    )


def _order(point: Point) -> tuple[str, bool, Pair, str]:
    missing = not all(map(math.isfinite, point.at))
    return point.method, missing, (0.0, 0.0) if missing else point.at, point.settings


def _ends(metric: str, values: Sequence[float]) -> Pair:
    """Return the worst and the ideal value of a metric; where unbounded, of the values found."""
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = metric_of(metric).within
    low = min(finite) if math.isinf(low) else min(low, *finite)
    high = max(finite) if math.isinf(high) else max(high, *finite)
    return (low, high) if metric_of(metric).more_is_better else (high, low)


def _lacking(points: Sequence[Point], metrics: tuple[str, str]) -> dict[str, list[str]]:
    return {p.label: [m for m, value in zip(metrics, p.at, strict=True) if not math.isfinite(value)] for p in points}


def _costs(points: Sequence[Pair], more_is_better: tuple[bool, bool]) -> list[Pair]:
    """Return both metrics with signs such that less is better."""
    first, second = (-1.0 if more else 1.0 for more in more_is_better)
    return [(first * x, second * y) for x, y in points]


# -- tables --


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
