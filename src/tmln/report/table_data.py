"""Describe a table for the page: summaries, tests, fronts, tiles, and the row of each method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from tmln.analysis.fronts import fronts_of
from tmln.analysis.ranks import MethodRanks, rank_methods, rank_notes
from tmln.analysis.rows import Row
from tmln.analysis.selection import find_unlearned, select_configurations
from tmln.analysis.significance import FEWEST, PairwiseTest, Significance, assess_significance
from tmln.analysis.summary_text import duration, p_text, write_headline, write_summary
from tmln.analysis.tables import cell, interval
from tmln.metrics import metric_of
from tmln.report.run_data import plain_summary

DIGITS = 6  # significant digits of a comparison: there are very many
MOST_REFERENCES = 25  # rows of a table up to which every one can be the reference; else one of each method
UNRANKED = "ranks need two methods on every benchmark, each with one configuration or one chosen on validation data"


@dataclass(frozen=True)
class Representative:
    """The row that represents a method; ``words`` say how it was chosen, if among several."""

    row: Row
    words: str
    fair: bool


def find_representative_rows(rows: Sequence[Row]) -> dict[str, Representative]:
    """Return one row per method, most accurate first, or its first row without accuracy."""
    group: dict[str, list[Row]] = {}
    for row in rows:
        group.setdefault(row.contender, []).append(row)
    found = {
        name: Representative(mine[0], f"highest ACC of {len(mine)}" * (len(mine) > 1), True)
        for name, mine in group.items()
    }
    selected = select_configurations(rows)
    return {**found, **{one.row.contender: Representative(one.row, one.words, one.fair) for one in selected}}


def describe_benchmarks(
    rows: Sequence[Row], tables: Mapping[str, Mapping[str, Representative]], metrics: Iterable[str]
) -> dict[str, Any] | None:
    """Return methods by benchmarks for each ranked metric; None for one table."""
    if len(tables) < 2:
        return None
    ranked = [metric for metric in metrics if metric_of(metric).is_ranked]
    return {
        "tables": list(tables),
        "maps": {metric: _map(rank_methods(rows, metric), tables, metric) for metric in ranked},
    }


def _map(found: MethodRanks | None, tables: Mapping[str, Mapping[str, Representative]], metric: str) -> dict[str, Any]:
    means = {} if found is None else found.ranks
    places = {} if found is None else found.places
    competes = {method: one.row.competes for mine in tables.values() for method, one in mine.items()}
    others = sorted(competes.keys() - means.keys(), key=lambda method: (not competes[method], method))
    methods = [
        {
            "method": method,
            "mean_rank": means.get(method),
            "cells": [
                _cell(mine.get(method), metric, places.get(method, {}).get(table)) for table, mine in tables.items()
            ],
        }
        for method in [*means, *others]
    ]
    return {"methods": methods, "notes": [UNRANKED] if found is None else rank_notes(found)}


def _cell(one: Representative | None, metric: str, rank: float | None) -> dict[str, Any] | None:
    if one is None or not math.isfinite(one.row.summary(metric).mean):
        return None
    found = one.row.summary(metric)
    spread = found.std if math.isfinite(found.std) else None
    text = cell(found, metric_of(metric))
    return {
        "label": one.row.label,
        "n": found.n,
        "mean": found.mean,
        "std": spread,
        "text": text,
        "rank": rank,
        "fair": one.fair,
    }


@dataclass(frozen=True)
class Table:
    """The rows of one table, the metrics they have, and what is found once for all of them."""

    name: str
    rows: Sequence[Row]
    metrics: Sequence[str]
    representatives: dict[str, Representative]
    tests: dict[str, Significance]
    strong: dict[str, set[str]]
    unlearned: dict[str, str]


def make_table(name: str, rows: Sequence[Row], metrics: Iterable[str]) -> Table:
    """Test the rows of a table in every metric that some of its runs have."""
    there = [metric for metric in metrics if any(row.summary(metric).n for row in rows)]
    tests = {metric: assess_significance(rows, metric) for metric in there}
    strong = {metric: found.bold_labels for metric, found in tests.items() if metric_of(metric).is_ranked}
    return Table(name, rows, there, find_representative_rows(rows), tests, strong, find_unlearned(rows))


def describe_table(table: Table, numbers: dict[int, int], warnings: int) -> dict[str, Any]:
    """Return what the page shows of a table; ``numbers`` maps ``id(row)`` to its number."""
    rows = table.rows
    chosen = [one.row for one in table.representatives.values()]
    references = rows if len(rows) <= MOST_REFERENCES else [row for row in rows if any(row is one for one in chosen)]
    return {
        "headline": write_headline(rows),
        "summary": write_summary(rows),
        "tiles": _tiles(table, numbers, warnings),
        "metrics": table.metrics,
        "references": [numbers[id(row)] for row in references],
        "comparisons": {metric: _comparisons(table, metric, references, numbers) for metric in table.metrics},
        "fronts": {f"{x} {y}": _fronts(table, x, y, numbers) for x, y in combinations(table.metrics, 2)},
    }


def describe_row(table: Table, row: Row) -> dict[str, Any]:
    """Return a row's summaries, how it was chosen, and the metrics in which it is bold."""
    mine = table.representatives[row.contender]
    return {
        "metrics": {metric: _summary(row, metric) for metric in table.metrics if row.summary(metric).n},
        "representative": row is mine.row,
        "chosen": mine.words if row is mine.row else "",
        "fair": mine.fair,
        "not_learned": table.unlearned.get(row.label, ""),
        "strong": [metric for metric, labels in table.strong.items() if row.label in labels],
    }


def _summary(row: Row, metric: str) -> dict[str, Any]:
    found, about = row.summary(metric), metric_of(metric)
    numbers = dict(zip(("n", "mean", "std", "low", "high"), plain_summary(found), strict=True))
    return {**numbers, "text": cell(found, about, spread=True), "interval": interval(found, about)}


# -- tests --


def _comparisons(
    table: Table, metric: str, references: Sequence[Row], numbers: dict[int, int]
) -> dict[str, dict[str, Any]]:
    """Return the tests against the best row (empty label) and each offered reference."""
    found = {"": table.tests[metric]}
    for row in references if metric_of(metric).is_ranked else ():
        if row.summary(metric).n:
            found[row.label] = assess_significance(table.rows, metric, reference=row)
    return {
        label: {
            "reference": None if one.reference is None else numbers[id(one.reference)],
            "rows": {numbers[id(pair.row)]: _pair(pair) for pair in one.pairs if pair.plain.n},
        }
        for label, one in found.items()
    }


def _pair(pair: PairwiseTest) -> list[Any]:
    """Return shared seeds, difference, p, corrected p, and whether that is significant."""
    numbers = (pair.plain.mean_difference, pair.p, pair.corrected)
    written = [float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None for x in numbers]
    return [pair.plain.n, *written, pair.is_significant]


# -- fronts --


def _fronts(table: Table, x: str, y: str, numbers: dict[int, int]) -> dict[str, Any]:
    """Return rows on the front of all methods and on each method's own.

    ``points`` has the rows of which fewer seeds have both metrics.
    """
    found = fronts_of(table.rows, x, y)
    named = {(row.method, row.settings): row for row in table.rows}
    rows = [named[point.method, point.settings] for point in found.points]
    points = {
        numbers[id(row)]: [plain_summary(point.x), plain_summary(point.y)]
        for row, point in zip(rows, found.points, strict=True)
        if (point.x, point.y) != (row.summary(x), row.summary(y)) and point.x.n and point.y.n
    }
    return {
        "all": [numbers[id(rows[member])] for member in found.skyline.members],
        "methods": {name: [numbers[id(rows[m])] for m in own.members] for name, own in found.methods.items()},
        "points": points,
    }


# -- tiles --


def _tiles(table: Table, numbers: dict[int, int], warnings: int) -> list[dict[str, Any]]:
    """Return the tiles: best accuracy, least forgetting, cost, significance, warnings."""
    tests = {metric: table.tests.get(metric) for metric in ("acc", "fm")}
    found = tests["acc"]
    if found is None or found.reference is None:
        return []
    best = found.reference
    fair = any(one.fair for one in select_configurations(table.rows))
    title = ("Leads" if found.has_winner else "Highest accuracy") if fair else "Chosen on the test data"
    tiles = [_tile(title, cell(best.summary("acc"), metric_of("acc")), "%", numbers[id(best)])]
    if tests["fm"] is not None and tests["fm"].reference is not None:
        least = tests["fm"].reference
        peak = least.summary("peak").mean
        after = "" if math.isnan(peak) else f" from a peak of {100 * peak:.1f}"
        title = "Forgets least" if tests["fm"].has_winner else "Lowest forgetting"
        tiles.append(_tile(title, cell(least.summary("fm"), metric_of("fm")), "%", numbers[id(least)], after=after))
    tiles += [*_cost(best, table.rows, numbers), _significance(found, numbers)]
    if warnings:
        things = "thing" if warnings == 1 else "things"
        tiles.append({**_tile("Before you trust it", str(warnings), before=f"{things} to know"), "section": "warnings"})
    return tiles


def _tile(
    what: str, figure: str, unit: str = "", row: int | None = None, before: str = "", after: str = ""
) -> dict[str, Any]:
    return {"what": what, "figure": figure, "unit": unit, "row": row, "before": before, "after": after}


def _cost(best: Row, rows: Sequence[Row], numbers: dict[int, int]) -> list[dict[str, Any]]:
    seconds = {id(row): row.summary("seconds").mean for row in rows if row.competes}
    timed = [row for row in rows if seconds.get(id(row), math.nan) > 0]
    if not any(row is best for row in timed):
        return []
    fastest = min(timed, key=lambda row: seconds[id(row)])
    figure = duration(seconds[id(best)])
    if fastest is best:
        return [_tile("Time of a run", figure, before="the fastest method")]
    before = f"{seconds[id(best)] / seconds[id(fastest)]:.1f} times that of "
    return [_tile("Time of a run", figure, row=numbers[id(fastest)], before=before)]


def _significance(found: Significance, numbers: dict[int, int]) -> dict[str, Any]:
    assert found.reference is not None
    near = next(iter(found.nearest), None)
    if near is None:
        n = found.reference.summary("acc").n
        return _tile("Significance", f"{n} seed{'s' * (n != 1)}", before="no other method to compare with")
    shared, row = near.plain.n, numbers[id(near.row)]
    seeds = f"{shared} seed{'s' * (shared != 1)}"
    if math.isnan(near.corrected) or shared < FEWEST:
        return _tile("Significance", "no test", row=row, before=f"{seeds} shared with ")
    before = "significantly above " if found.has_winner else "no significant lead; nearest: "
    return _tile("Holm-corrected p", f"p {p_text(near.corrected)}", row=row, before=before, after=f", {seeds}")
