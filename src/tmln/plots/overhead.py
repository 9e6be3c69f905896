"""Figure of overheads: each method's time relative to naive, with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tmln.plots.figure import get_look, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def overhead_figure(content: Mapping[str, Any]) -> Figure:
    """Draw a bar with its 95% interval per method, and a diamond for a whole run.

    The cheapest method is on top.
    """
    found = {name: m for name, m in content["methods"].items() if m["step"]["ratio"]["mean"] is not None}
    names = sorted(found, key=lambda name: float(found[name]["step"]["ratio"]["mean"]), reverse=True)
    missing = [name for name in content["methods"] if name not in found]
    figure = new_figure(6.4, 1.3 + 0.36 * len(names))
    axes = figure.subplots()
    for row, name in enumerate(names):
        ratio, whole = found[name]["step"]["ratio"], found[name]["training"]["ratio"]["mean"]
        axes.barh(row, ratio["mean"], height=0.62, color=get_look(name).colour, alpha=0.85)
        right = max(ratio["mean"], whole)
        if ratio["low"] is not None and name != "naive":
            reach = [[ratio["mean"] - ratio["low"]], [ratio["high"] - ratio["mean"]]]
            axes.errorbar(ratio["mean"], row, xerr=reach, color="black", capsize=3, linewidth=1.1)
            right = max(right, ratio["high"])
        axes.scatter(
            whole,
            row,
            marker="D",
            s=22,
            facecolor="white",
            edgecolor="black",
            zorder=3,
            label="" if row else "whole run, boundaries included",
        )
        axes.annotate(f"{ratio['mean']:.2f}", (right, row), (7, 0), textcoords="offset points", va="center", fontsize=9)
    axes.axvline(1.0, color="0.4", linewidth=0.9, linestyle="--", zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0, axes.get_xlim()[1] * 1.08)
    axes.set_xlabel("time of a step, naive = 1 (95% interval over rounds)")
    left_out = f"; {', '.join(missing)} diverged" if missing else ""
    axes.set_title(f"{content['benchmark']}, {content['model']}{left_out}", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper right", frameon=False, fontsize=9)
    return figure
