"""Fronts as a picture (the paper's Figure 3): every configuration a marker, fronts outlined, the skyline in black."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tmln.analysis.fronts import Front, Fronts, Point
from tmln.analysis.statistics import Summary
from tmln.metrics import metric_of
from tmln.plots.figure import new_figure
from tmln.plots.palette import look_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
LISTED = 12  # so many of the skyline's configurations can be named beside the picture


def pareto_figure(every: Sequence[Fronts], shared: bool = False) -> Figure:
    """A panel for each benchmark, one legend for all; of a single benchmark the skyline is named.

    ``shared``: all panels have the same axes, so that their points can be compared by eye.
    """
    from matplotlib.lines import Line2D

    figure = new_figure(1.8 + 4.6 * len(every), 4.4)
    panels = figure.subplots(1, len(every), squeeze=False, sharex=shared, sharey=shared)[0]
    for axes, fronts in zip(panels, every, strict=True):
        _panel(axes, fronts)
    points = [point for fronts in every for point in fronts.points]
    placed = {point.method for point in points if all(map(math.isfinite, point.at))}
    entries = []
    for name in sorted({point.method for point in points}):
        look, label = look_of(name), name if name in placed else f"{name} (not placed)"
        entries.append(Line2D([], [], color=look.colour, marker=look.marker, ls="", ms=6, label=label))
    ring: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "markersize": 10}
    entries += [
        Line2D([], [], color="0.6", linewidth=1.2, markeredgecolor="0.6", label="front of a method", **ring),
        Line2D([], [], color="black", linewidth=1.6, markeredgecolor="black", label="front of all", **ring),
        Line2D([], [], color="0.6", alpha=0.5, linewidth=0.8, label="± deviation over seeds"),
    ]
    if len(every) == 1 and len(every[0].skyline.members) <= LISTED:
        entries += [Line2D([], [], ls="", label=text) for text in _number_skyline(panels[0], every[0])]
    figure.legend(handles=entries, loc="outside right upper", frameon=False, fontsize=8.5)
    return figure


def _panel(axes: Axes, fronts: Fronts) -> None:
    for method, own in fronts.methods.items():
        look = look_of(method)
        mine = [point for point in fronts.points if point.method == method and all(map(math.isfinite, point.at))]
        x, y = _at(fronts, mine)
        wide, high = ([_scaled(m, _spread(s)) for s in found] for m, found in _summaries(fronts, mine))
        axes.errorbar(x, y, high, wide, "none", ecolor=look.colour, alpha=0.3, elinewidth=0.8, zorder=1)
        axes.scatter(x, y, s=32, color=look.colour, marker=look.marker, linewidths=0, zorder=4)
        _outline(axes, fronts, own, look.colour, 1.2, STYLE[look.dash], zorder=2)
    _outline(axes, fronts, fronts.skyline, "black", 1.6, "-", zorder=3)
    _dress(axes, fronts)


def _outline(axes: Axes, fronts: Fronts, found: Front, colour: str, width: float, style: str, zorder: int) -> None:
    """Rings around a front's points, and what bounds the region they dominate: on from a point, then to the next."""
    x, y = _at(fronts, [fronts.points[number] for number in found.members])
    axes.plot(x, y, drawstyle="steps-post", color=colour, linewidth=width, linestyle=style, zorder=zorder)
    axes.scatter(x, y, s=105, facecolors="none", edgecolors=colour, linewidths=width, zorder=zorder + 2)


def _number_skyline(axes: Axes, fronts: Fronts) -> list[str]:
    """Put numbers at the skyline's points, on the better side, where no other point can be; what they stand for."""
    points = [fronts.points[number] for number in fronts.skyline.members]
    right, up = (metric_of(metric).more_is_better for metric in (fronts.x, fronts.y))
    where: dict[str, Any] = {"ha": "left" if right else "right", "va": "bottom" if up else "top"}
    for number, (x, y) in enumerate(zip(*_at(fronts, points), strict=True), 1):
        offset = (6 if right else -6, 3 if up else -3)
        axes.annotate(str(number), (x, y), offset, textcoords="offset points", fontsize=8, weight="bold", **where)
    listed = (f"{number}  {point.label}" for number, point in enumerate(points, 1))
    return [textwrap.fill(text, 34, subsequent_indent="    ") for text in listed]


def _dress(axes: Axes, fronts: Fronts) -> None:
    drawn = _at(fronts, fronts.points)
    for metric, values, label, line in (
        (fronts.x, drawn[0], axes.set_xlabel, axes.axvline),
        (fronts.y, drawn[1], axes.set_ylabel, axes.axhline),
    ):
        shown = metric_of(metric)
        better = "more is better" if shown.more_is_better else "less is better"
        label(f"{shown.heading} ({'%, ' if shown.percent else ''}{better})")
        if any(value < 0 for value in values):
            line(0.0, color="0.85", linewidth=0.8, zorder=0)
    axes.set_title(fronts.benchmark, fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    if not fronts.skyline.members:
        axes.tick_params(bottom=False, left=False, labelbottom=False, labelleft=False)
        why = "\n".join(note for note in fronts.notes if " no " in note or " not " in note)
        axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", fontsize=8)


def _spread(summary: Summary) -> float:
    return 0.0 if math.isnan(summary.std) else summary.std


def _summaries(fronts: Fronts, points: Sequence[Point]) -> list[tuple[str, list[Summary]]]:
    return [(fronts.x, [point.x for point in points]), (fronts.y, [point.y for point in points])]


def _at(fronts: Fronts, points: Sequence[Point]) -> tuple[list[float], list[float]]:
    x, y = ([_scaled(metric, s.mean) for s in found] for metric, found in _summaries(fronts, points))
    return x, y


def _scaled(metric: str, value: float) -> float:
    return 100.0 * value if metric_of(metric).percent else value
