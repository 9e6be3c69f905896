"""Choose the row that represents each method, and lay methods out by benchmark with their ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tmln.analysis.ranks import MethodRanks, rank_methods, rank_notes
from tmln.analysis.rows import Row
from tmln.analysis.selection import select_configurations
from tmln.analysis.tables import cell
from tmln.metrics import metric_of

UNRANKED = "ranks need two methods on every benchmark, each with one configuration or one chosen on validation data"


@dataclass(frozen=True)
class Representative:
    """The row that represents a method; ``words`` say how it was chosen, if among several."""

    row: Row
    words: str
    fair: bool


def find_representative_rows(rows: Sequence[Row]) -> dict[str, Representative]:
    """Return one row per method, most accurate first, or its first row without accuracy."""
    kin: dict[str, list[Row]] = {}
    for row in rows:
        kin.setdefault(row.contender, []).append(row)
    found = {
        name: Representative(mine[0], f"highest ACC of {len(mine)}" * (len(mine) > 1), True)
        for name, mine in kin.items()
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
