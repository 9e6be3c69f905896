"""Figure of fronts (Figure 3 of the paper): configurations, fronts of methods, front of all."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tmln.analysis.fronts import Front, Fronts, Point
from tmln.analysis.statistics import Summary
from tmln.metrics import metric_of
from tmln.plots.figure import get_look, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
MAX_NAMED = 12  # configurations on the front of all that are named beside the figure


def pareto_figure(every: Sequence[Fronts], shared: bool = False) -> Figure:
    """Draw a panel per benchmark with one legend; for one benchmark its front of all is named.

    With ``shared``, all panels have the same axes.
    """
    from matplotlib.lines import Line2D

    figure = new_figure(1.8 + 4.6 * len(every), 4.4)
    panels = figure.subplots(1, len(every), squeeze=False, sharex=shared, sharey=shared)[0]
    for axes, fronts in zip(panels, every, strict=True):
        _draw_panel(axes, fronts)
    points = [point for fronts in every for point in fronts.points]
    placed = {point.method for point in points if all(map(math.isfinite, point.at))}
    entries = []
    for name in sorted({point.method for point in points}):
        look, label = get_look(name), name if name in placed else f"{name} (not placed)"
        entries.append(Line2D([], [], color=look.colour, marker=look.marker, ls="", ms=6, label=label))
    ring: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "markersize": 10}
    entries += [
        Line2D([], [], color="0.6", linewidth=1.2, markeredgecolor="0.6", label="front of a method", **ring),
        Line2D([], [], color="black", linewidth=1.6, markeredgecolor="black", label="front of all", **ring),
        Line2D([], [], color="0.6", alpha=0.5, linewidth=0.8, label="± deviation over seeds"),
    ]
    if len(every) == 1 and len(every[0].skyline.members) <= MAX_NAMED:
        entries += [Line2D([], [], ls="", label=text) for text in _number_skyline(panels[0], every[0])]
    figure.legend(handles=entries, loc="outside right upper", frameon=False, fontsize=8.5)
    return figure


def _draw_panel(axes: Axes, fronts: Fronts) -> None:
    for method, own in fronts.methods.items():
        look = get_look(method)
        mine = [point for point in fronts.points if point.method == method and all(map(math.isfinite, point.at))]
        x, y = _coordinates(fronts, mine)
        wide, high = ([_scale(m, _spread(s)) for s in found] for m, found in _summaries(fronts, mine))
        axes.errorbar(x, y, high, wide, "none", ecolor=look.colour, alpha=0.3, elinewidth=0.8, zorder=1)
        axes.scatter(x, y, s=32, color=look.colour, marker=look.marker, linewidths=0, zorder=4)
        _draw_outline(axes, fronts, own, look.colour, 1.2, STYLE[look.dash], zorder=2)
    _draw_outline(axes, fronts, fronts.skyline, "black", 1.6, "-", zorder=3)
    _format_axes(axes, fronts)


def _draw_outline(axes: Axes, fronts: Fronts, found: Front, colour: str, width: float, style: str, zorder: int) -> None:
    """Draw rings around a front's points and the boundary of the region that they dominate."""
    x, y = _coordinates(fronts, [fronts.points[number] for number in found.members])
    axes.plot(x, y, drawstyle="steps-post", color=colour, linewidth=width, linestyle=style, zorder=zorder)
    axes.scatter(x, y, s=105, facecolors="none", edgecolors=colour, linewidths=width, zorder=zorder + 2)


def _number_skyline(axes: Axes, fronts: Fronts) -> list[str]:
    """Write numbers at the points on the front of all; return their labels."""
    points = [fronts.points[number] for number in fronts.skyline.members]
    right, up = (metric_of(metric).more_is_better for metric in (fronts.x, fronts.y))
    where: dict[str, Any] = {"ha": "left" if right else "right", "va": "bottom" if up else "top"}
    for number, (x, y) in enumerate(zip(*_coordinates(fronts, points), strict=True), 1):
        offset = (6 if right else -6, 3 if up else -3)
        axes.annotate(str(number), (x, y), offset, textcoords="offset points", fontsize=8, weight="bold", **where)
    listed = (f"{number}  {point.label}" for number, point in enumerate(points, 1))
    return [textwrap.fill(text, 34, subsequent_indent="    ") for text in listed]


def _format_axes(axes: Axes, fronts: Fronts) -> None:
    drawn = _coordinates(fronts, fronts.points)
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


def _coordinates(fronts: Fronts, points: Sequence[Point]) -> tuple[list[float], list[float]]:
    x, y = ([_scale(metric, s.mean) for s in found] for metric, found in _summaries(fronts, points))
    return x, y


def _scale(metric: str, value: float) -> float:
    return 100.0 * value if metric_of(metric).percent else value
