"""Methods by benchmarks: what stands for each method on each, and the ranks of those that are on all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tmln.metrics import metric_of
from tmln.report.faces import Face
from tmln.results.across import Across, across
from tmln.results.across_table import across_notes
from tmln.results.rows import Row

UNRANKED = "ranks need two methods that are on every benchmark with one configuration, or one chosen on validation data"


def benchmarks_of(
    rows: Sequence[Row], faces: Mapping[str, Mapping[str, Face]], metrics: Iterable[str]
) -> dict[str, Any] | None:
    """``faces`` are by table and method. A map for each metric that is contested; None where there is one table."""
    if len(faces) < 2:
        return None
    contested = [metric for metric in metrics if metric_of(metric).contest]
    return {"tables": list(faces), "maps": {metric: _map(across(rows, metric), faces, metric) for metric in contested}}


def _map(found: Across | None, faces: Mapping[str, Mapping[str, Face]], metric: str) -> dict[str, Any]:
    means = {} if found is None else found.ranks
    competes = {method: face.row.competes for mine in faces.values() for method, face in mine.items()}
    others = sorted(competes.keys() - means.keys(), key=lambda method: (not competes[method], method))
    methods = [
        {
            "method": method,
            "mean_rank": means.get(method),
            "cells": [_cell(mine.get(method), metric, _place(found, method, table)) for table, mine in faces.items()],
        }
        for method in [*means, *others]
    ]
    notes = [UNRANKED] if found is None else across_notes(found)
    return {"methods": methods, "notes": notes}


def _place(found: Across | None, method: str, table: str) -> float | None:
    return None if found is None else found.places.get(method, {}).get(table)


def _cell(face: Face | None, metric: str, rank: float | None) -> dict[str, Any] | None:
    if face is None or not math.isfinite(face.row.summary(metric).mean):
        return None
    found = face.row.summary(metric)
    spread = found.std if math.isfinite(found.std) else None
    return {"label": face.row.label, "n": found.n, "mean": found.mean, "std": spread, "rank": rank, "fair": face.fair}
