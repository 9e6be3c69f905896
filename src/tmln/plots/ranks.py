"""Nemenyi's critical-difference diagram: mean ranks, and bars over methods that do not differ."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tmln.analysis.ranks import LEVEL, MethodRanks
from tmln.analysis.summary_text import p_text
from tmln.plots.figure import get_look, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def ranks_figure(found: MethodRanks) -> Figure:
    """Draw mean ranks, best on the left; one bar joins all if Friedman's test finds nothing."""
    names = list(found.ranks)
    bars = found.cliques if found.friedman < LEVEL else [tuple(names)]
    levels = math.ceil(len(names) / 2)
    top = 0.55 + 0.22 * len(bars)
    figure = new_figure(7.2, 1.1 + 0.3 * (levels + len(bars)))
    axes = figure.subplots()
    axes.set_xlim(0.4, len(names) + 0.6)
    axes.set_ylim(-top - 0.45 * levels, 1.2)
    axes.axis("off")
    axes.hlines(0, 1, len(names), color="black", linewidth=1.2)
    for place in range(1, len(names) + 1):
        axes.vlines(place, 0, 0.12, color="black", linewidth=1)
        axes.annotate(str(place), (place, 0.18), ha="center", va="bottom", fontsize=9)
    axes.hlines(0.85, 1, 1 + found.critical, color="black", linewidth=1.6)
    axes.annotate(f"CD {found.critical:.2f}", (1, 0.95), ha="left", va="bottom", fontsize=9)
    for number, name in enumerate(names):
        left = number < levels
        height = -top - 0.45 * (number if left else len(names) - 1 - number)
        end = 0.95 if left else len(names) + 0.05
        rank, colour = found.ranks[name], get_look(name.partition(" ")[0]).colour
        axes.plot([rank, rank, end], [0, height, height], color=colour, linewidth=1.2)
        text = f"{name} {rank:.2f}"
        axes.annotate(
            text, (end, height), ha="right" if left else "left", va="center", fontsize=9, annotation_clip=False
        )
    for number, group in enumerate(bars):
        height = -0.25 - 0.22 * number
        ends = found.ranks[group[0]] - 0.04, found.ranks[group[-1]] + 0.04
        axes.hlines(height, *ends, color="black", linewidth=3.2)
    axes.set_title(f"mean ranks over {len(found.tables)} tables, Friedman p {p_text(found.friedman)}", fontsize=11)
    return figure
