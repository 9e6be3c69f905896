"""Figure of barriers: losses of earlier tasks between solutions, and barrier and climb."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tmln.plots.figure import get_look, new_figure, wrap_label
from tmln.plots.fronts import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NONE_AT_ALL = {  # instead of a panel of zeros
    "barrier": "0 for every method:\non no line does the loss rise\nabove the straight one",
    "climb": "0 for every method:\non no line does the loss rise\nabove its beginning",
}


def barrier_figure(content: Mapping[str, Any]) -> Figure:
    """Draw the result of :func:`tmln.measure.barrier.measure_barriers`, measured or loaded."""
    solutions = len(content["tasks"])
    figure = new_figure(5.2 + 0.9 * solutions, 4.4)
    panels = figure.subplot_mosaic([["path", "barrier"], ["path", "climb"]], width_ratios=[1.2 + 0.9 * solutions, 3.2])
    for entry in content["methods"]:
        if entry["seeds"]:
            _draw_path(panels["path"], entry, content["shares"])
    _format_axes(panels["path"], solutions)
    _draw_dots(panels["barrier"], content["methods"], "barrier", "above the straight line: barrier")
    _draw_dots(panels["climb"], content["methods"], "climb", "above the earlier solution: climb")
    for axes in panels.values():
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=9)
    statistics = "" if content["bn"] == "keep" else ", batch norm re-estimated"
    figure.suptitle(f"{content['benchmark']}: the loss of earlier tasks between solutions{statistics}", fontsize=11)
    return figure


def _draw_path(axes: Axes, entry: Mapping[str, Any], shares: list[float]) -> None:
    """Draw the mean over seeds with a band of one standard deviation, and the straight line."""
    look = get_look(entry["method"])
    s = np.array(shares)
    for number in range(len(entry["seeds"][0]["pairs"])):
        curves = np.array([_mean_loss(seed["pairs"][number]) for seed in entry["seeds"]])
        x, middle = number + 1 + s, curves.mean(axis=0)
        label = wrap_label(entry["label"]) if number == 0 else None
        shape: dict[str, Any] = {"marker": look.marker, "markersize": 5, "markevery": [0, -1]}
        axes.plot(x, middle, color=look.colour, ls=STYLE[look.dash], lw=1.8, label=label, zorder=3, **shape)
        axes.plot(x, (1 - s) * middle[0] + s * middle[-1], ":", color=look.colour, linewidth=1.0, zorder=2)
        if len(curves) > 1:
            spread = curves.std(axis=0, ddof=1)
            axes.fill_between(x, middle - spread, middle + spread, color=look.colour, alpha=0.15, linewidth=0, zorder=1)


def _format_axes(axes: Axes, solutions: int) -> None:
    for number in range(1, solutions + 1):
        axes.axvline(number, color="0.85", linewidth=0.8, zorder=0)
    axes.set_xticks(range(1, solutions + 1), [f"after\ntask {number}" for number in range(1, solutions + 1)])
    # not logarithmic: the straight line that the barrier is measured from would be curved
    axes.set_ylabel("mean loss of the tasks learned before")
    axes.plot([], [], ":", color="0.4", linewidth=1.0, label="straight line")
    axes.legend(frameon=False, fontsize=9)


def _mean_loss(pair: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return the mean over earlier tasks; a loss that is not finite leaves a gap."""
    losses = [[math.nan if loss is None else loss for loss in one["loss"]] for one in pair["tasks"]]
    mean = np.array(losses, dtype=np.float64).mean(axis=0)
    return np.where(np.isfinite(mean), mean, math.nan)


def _draw_dots(axes: Axes, entries: Sequence[Mapping[str, Any]], key: str, title: str) -> None:
    """Draw mean and standard deviation over seeds and a tick per seed; a text if all are 0."""
    values = [one[key] for entry in entries for one in entry["seeds"]]
    if values and all(value == 0 for value in values):
        axes.set_axis_off()
        axes.text(0.5, 0.5, NONE_AT_ALL[key], transform=axes.transAxes, ha="center", va="center", fontsize=9)
        axes.set_title(title, fontsize=10)
        return
    for place, entry in enumerate(reversed(entries)):
        look = get_look(entry["method"])
        found = [one[key] for one in entry["seeds"] if one[key] is not None and math.isfinite(one[key])]
        axes.plot(found, [place - 0.22] * len(found), "|", color=look.colour, alpha=0.8, markersize=6)
        middle, spread = (entry["summary"][key][name] for name in ("mean", "std"))
        if middle is None or not math.isfinite(middle):
            text = "not finite" if entry["seeds"] else "diverged"
            axes.text(0.02, place, text, transform=axes.get_yaxis_transform(), va="center", fontsize=9, color="0.4")
            continue
        spread = 0.0 if spread is None or math.isnan(spread) else spread
        axes.errorbar(middle, place, xerr=spread, color=look.colour, marker=look.marker, markersize=7, capsize=3)
        axes.annotate(
            format_short(middle), (middle, place), (0, 6), textcoords="offset points", ha="center", fontsize=8
        )
    axes.set_yticks(range(len(entries)), [wrap_label(entry["label"]) for entry in reversed(entries)])
    axes.set_ylim(-0.6, len(entries) - 0.2)
    right = axes.get_xlim()[1]
    axes.set_xlim(-0.06 * right, 1.06 * right)
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel("loss: mean ± sample deviation,\na small tick for each seed", fontsize=8)
    axes.set_title(title, fontsize=10)


def format_short(value: float) -> str:
    """Return two digits, or all digits before the point."""
    return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.2g}"
