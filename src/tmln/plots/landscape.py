"""Figure of landscapes (Figure 2 of the paper): log10 of task 1's loss, with trajectories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tmln.measure.losses import STAGES
from tmln.methods.recipes import RECIPES
from tmln.plots.figure import get_look, new_figure, wrap_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

COLUMNS = 4
BANDS = 24  # of colour, at most
AXES = {
    "plane": ("u: distance of weights along task 1's move", "v: distance off u, towards task 2"),
    "random": ("first random direction (filter norms)", "second random direction (filter norms)"),
}
FLOOR = 1e-8  # smallest loss, for the logarithm
MARKERS = dict(zip(STAGES, (("o", "white", 55), ("*", "#e69f00", 170), ("*", "#56d4f0", 170)), strict=True))
CENTRE = STAGES[1]  # of random directions
NAMES = dict(zip(STAGES, ("start", "task-1 solution", "task-2 solution"), strict=True))
NOT_FINITE = "0.85"  # colour


def landscape_figure(content: Mapping[str, Any]) -> Figure:
    """Draw the result of :func:`tmln.measure.landscape.measure_landscape`, measured or loaded."""
    entries = content["methods"]
    rows = -(-len(entries) // COLUMNS)
    columns = -(-len(entries) // rows)
    figure = new_figure(1.4 + 2.9 * columns, 1.1 + 3.3 * rows)
    figure.set_layout_engine("compressed")  # square panels, close together
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    levels = _levels([_log10(entry["loss"]) for entry in entries if not entry["problem"]])
    shades = None
    for axes, entry in zip(panels, entries, strict=False):
        shades = _draw_panel(axes, entry, content, levels) or shades
    for axes in panels[len(entries) :]:
        axes.set_visible(False)
    x, y = AXES[content["mode"]]
    for number, axes in enumerate(panels[: len(entries)]):
        if number + columns >= len(entries):  # nothing below
            axes.set_xlabel(x, fontsize=9)
            axes.tick_params(labelbottom=True)
        if number % columns == 0:
            axes.set_ylabel(y, fontsize=9)
    if shades is not None:
        bar = figure.colorbar(shades, ax=list(panels), shrink=0.9, pad=0.015)
        bar.set_label(f"log10 of the loss of {content['tasks'][0]}", fontsize=10)
        bar.set_ticks(_round(levels, -(-len(levels) // 8)))
        bar.ax.tick_params(labelsize=8)
    figure.suptitle(_title(content), fontsize=11)
    _legend(figure, panels[0], content["mode"])
    return figure


def format_residual(residual: float | None) -> str:
    """Return how far checkpoints are off the plane, or a dash where there are none between tasks.

    >>> format_residual(0.123), format_residual(math.nan)
    ('12%', '-')
    """
    return "-" if residual is None or math.isnan(residual) else f"{100 * residual:.0f}%"


def _draw_panel(axes: Axes, entry: Mapping[str, Any], content: Mapping[str, Any], levels: NDArray[Any]) -> Any:
    from matplotlib.patheffects import Normal, Stroke

    axes.set_box_aspect(1)
    axes.tick_params(labelsize=8)
    look = get_look(entry["method"])
    if entry["problem"]:
        axes.set_title(wrap_label(entry["label"]), fontsize=10)
        axes.text(0.5, 0.5, entry["problem"], transform=axes.transAxes, ha="center", va="center", wrap=True, fontsize=8)
        return None
    share = format_residual(entry["residual"])
    off = "" if share == "-" else f"\ntrajectory {share} off the plane"
    axes.set_title(f"{wrap_label(entry['label'])}{off}", fontsize=9 if " " in entry["label"] else 10)
    axes.set_facecolor(NOT_FINITE)
    values = np.ma.masked_invalid(_log10(entry["loss"]))
    shades: ScalarMappable = axes.contourf(content["x"], content["y"], values, levels=levels, cmap="viridis")
    axes.contour(
        content["x"],
        content["y"],
        values,
        levels=_round(levels, 2),
        colors="white",
        linewidths=0.4,
        alpha=0.6,
        linestyles="-",
    )
    outlined = [Stroke(linewidth=3.8, foreground="white"), Normal()]
    for line in _trajectories(entry) if content["mode"] == "plane" else ():
        x, y = [point["x"] for point in line], [point["y"] for point in line]
        axes.plot(x, y, "-", color=look.colour, linewidth=2.0, path_effects=outlined, zorder=3)
        axes.plot(x, y, "o", color=look.colour, markersize=3.4, markeredgecolor="white", markeredgewidth=0.4, zorder=4)
    for stage, (marker, colour, size) in _markers(content["mode"]).items():
        place = entry["markers"][stage]
        axes.scatter(
            place["x"], place["y"], s=size, marker=marker, c=colour, edgecolors="black", linewidths=0.8, zorder=5
        )
    axes.set_xlim(content["x"][0], content["x"][-1])
    axes.set_ylim(content["y"][0], content["y"][-1])
    return shades


def _markers(mode: str) -> dict[str, tuple[str, str, int]]:
    """Return the markers to draw; random directions contain one network only."""
    return MARKERS if mode == "plane" else {CENTRE: MARKERS[CENTRE]}


def _trajectories(entry: Mapping[str, Any]) -> list[list[Mapping[str, Any]]]:
    """Return a line per task from where the task began: the start, for methods that restart."""
    afresh = entry["method"] in RECIPES and RECIPES[entry["method"]].restarts_each_task
    lines: list[list[Mapping[str, Any]]] = []
    for _, points in groupby(entry["points"], key=lambda point: point["task"]):
        before = [entry["points"][0] if afresh else lines[-1][-1]] if lines else []
        lines.append([*before, *points])
    return lines


def _log10(losses: Sequence[Sequence[float | None]]) -> NDArray[np.float64]:
    """Return log10 of the losses; null in saved values means not finite."""
    grid = np.array([[math.nan if value is None else value for value in row] for row in losses], dtype=np.float64)
    return np.log10(np.maximum(grid, FLOOR))


def _levels(grids: Sequence[NDArray[np.float64]]) -> NDArray[Any]:
    """Return the contour levels of all panels together, at round numbers."""
    finite = np.concatenate([np.empty(0), *(grid[np.isfinite(grid)] for grid in grids)])
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, math.inf) if (high - low) / step < BANDS - 1)
    return step * np.arange(math.floor(low / step), max(math.floor(low / step) + 1, math.ceil(high / step)) + 1)


def _round(levels: NDArray[Any], every: int) -> list[float]:
    """Return every ``every``-th level, 0 among them."""
    return [float(level) for level in levels if round(level / (levels[1] - levels[0])) % every == 0]


def _title(content: Mapping[str, Any]) -> str:
    plane = "" if content["mode"] == "plane" else ", random filter-normalised directions"
    bn = "" if content["bn"] == "keep" else ", batch norm re-estimated"
    return f"{content['benchmark']}, seed {content['seed']}, {content['samples']} {content['split']} samples{plane}{bn}"


def _legend(figure: Figure, axes: Axes, mode: str) -> None:
    shown = _markers(mode)
    handles = [
        axes.scatter([], [], s=0.5 * size, marker=marker, c=colour, edgecolors="black", linewidths=0.8)
        for marker, colour, size in shown.values()
    ]
    names = [NAMES[stage] for stage in shown]
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
