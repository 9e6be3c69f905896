"""Fronts as text: every configuration with the fronts it is on, and each method's hypervolume."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tmln.lab.files import to_json
from tmln.results.fronts import Front, Fronts
from tmln.results.rows import metric_of
from tmln.results.statistics import Summary
from tmln.results.tables import cell
from tmln.results.textgrid import Strong, grid_csv


def configurations(fronts: Fronts) -> list[list[str]]:
    """Heading and a line for each configuration; the skyline's stand out."""
    x, y = metric_of(fronts.x), metric_of(fronts.y)
    lines = [["configuration", "n", x.title, y.title, "front"]]
    for number, point in enumerate(fronts.points):
        values = [cell(point.x, x.percent, x.digits), cell(point.y, y.percent, y.digits)]
        on = _on(fronts, number)
        line = [point.label, str(min(point.x.n, point.y.n)), *values, on or "-"]
        lines.append([Strong(text) for text in line] if on == "all" else line)
    return lines


def volumes(fronts: Fronts) -> list[list[str]]:
    """Heading, a line for each method and one for all of them; the largest hypervolume of a method stands out."""
    lines = [["method", "configurations", "on its front", "on the skyline", "hypervolume"]]
    largest = max((f.hypervolume for f in fronts.methods.values() if f.members), default=math.nan)
    for method, own in fronts.methods.items():
        count = sum(point.method == method for point in fronts.points)
        shared = len({*own.members} & {*fronts.skyline.members})
        line = [method, str(count), str(len(own.members)), str(shared), _volume(own)]
        lines.append([*line[:-1], Strong(line[-1])] if own.hypervolume == largest else line)
    total = len(fronts.skyline.members)
    return [*lines, ["all", str(len(fronts.points)), "-", str(total), _volume(fronts.skyline)]]


def notes(fronts: Fronts) -> list[str]:
    """What a reader must know before trusting a front."""
    metrics = (metric_of(fronts.x), metric_of(fronts.y))
    ideal, worst = (
        ", ".join(
            f"{m.heading} {100 * end:.0f} %" if m.percent else f"{end:{m.digits}} {m.heading}"
            for m, end in zip(metrics, ends, strict=True)
        )
        for ends in (fronts.ideal, fronts.reference)
    )
    return [
        "a point is a configuration's mean over n seeds ± sample standard deviation; front: not dominated within its "
        "method (own) or by any method (all)",
        f"hypervolume: the share dominated of all between the ideal ({ideal}) and the worst ({worst}); 1 is all of it",
        *fronts.notes,
    ]


def as_csv(every: Sequence[Fronts]) -> str:
    """One line a configuration, numbers whole."""
    parts = ("n", "mean", "std", "low", "high")
    first = every[0]
    numbers = [f"{m}_{part}" for m in (first.x, first.y) for part in parts]
    lines = [["benchmark", "method", "settings", *numbers, "own_front", "skyline", "method_hypervolume"]]
    for fronts in every:
        for number, point in enumerate(fronts.points):
            values = [getattr(s, part) for s in (point.x, point.y) for part in parts]
            volume, on = fronts.methods[point.method].hypervolume, _on(fronts, number)
            texts = ["" if math.isnan(value) else str(value) for value in (*values, volume)]
            flags = [str(int(on != "")), str(int(on == "all"))]
            lines.append([fronts.benchmark, point.method, point.settings, *texts[:-1], *flags, texts[-1]])
    return grid_csv(lines)


def as_json(every: Sequence[Fronts]) -> str:
    """What is not a number is null."""
    return to_json([_plain(fronts) for fronts in every], indent=1)


def _plain(fronts: Fronts) -> dict[str, Any]:
    def summary(value: Summary) -> dict[str, float]:
        return {part: getattr(value, part) for part in ("n", "mean", "std", "low", "high")}

    def members(found: Front) -> dict[str, Any]:
        return {"hypervolume": found.hypervolume, "front": [fronts.points[n].label for n in found.members]}

    return {
        "benchmark": fronts.benchmark,
        "x": fronts.x,
        "y": fronts.y,
        "reference": fronts.reference,
        "ideal": fronts.ideal,
        "skyline": members(fronts.skyline),
        "methods": {method: members(found) for method, found in fronts.methods.items()},
        "configurations": [
            {"method": point.method, "settings": point.settings, fronts.x: summary(point.x), fronts.y: summary(point.y)}
            for point in fronts.points
        ],
        "notes": fronts.notes,
    }


def _on(fronts: Fronts, number: int) -> str:
    if number in fronts.skyline.members:
        return "all"
    return "own" if number in fronts.methods[fronts.points[number].method].members else ""


def _volume(found: Front) -> str:
    return "-" if math.isnan(found.hypervolume) else f"{found.hypervolume:.4f}"
