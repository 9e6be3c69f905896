"""Figure 2: the loss of task 1 around the ways of Naive SGD, ER and TMLN to task 2, on Split CIFAR-100."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tmln.measure.landscape import landscape
from tmln.paper.evidence import Study
from tmln.paper.item import Item, Recorded, no_runs
from tmln.paper.measured import Content, measured
from tmln.paper.notes import NOTES
from tmln.paper.page import Page, Sheet
from tmln.paper.published import TABLE5
from tmln.paper.scales import Scale
from tmln.paper.table1 import METHODS
from tmln.paper.table5 import BENCHMARK, CHECKPOINTS
from tmln.plots.landscape import landscape_figure

TITLE = "Figure 2: ways through the loss landscape"
HEADING = ["method", "task 1: along u", "task 2: along u", "task 2: along v", "off plane %"]


def recordings(scale: Scale) -> list[Recorded]:
    """Two tasks of each method, with the way between them."""
    stand = scale.stand(BENCHMARK)
    return [Recorded(stand.config(method), 2, CHECKPOINTS) for method in TABLE5]


def render(study: Study) -> Page:
    """The loss of task 1 in the plane through the start and both solutions."""
    stand, scale = study.stand(BENCHMARK), study.scale
    configs = [recorded.config for recorded in recordings(scale)]
    options: dict[str, Any] = {"resolution": scale.resolution, "samples": scale.samples, "checkpoints": CHECKPOINTS}

    def measure() -> Content:
        return landscape(configs, study.store, **options)

    found, why = measured(study, stand, "landscape", configs, measure, **options)
    notes = [stand.remark, *why]
    lines = [HEADING]
    records: list[Mapping[str, Any]] = []
    for entry in [] if found is None else found["methods"]:
        if entry["problem"]:
            notes.append(f"{METHODS[entry['method']]} is not drawn: {entry['problem']}")
            continue
        start, first, second = entry["markers"].values()
        moves = [first["x"] - start["x"], second["x"] - first["x"], second["y"] - first["y"]]
        off = entry["residual"]
        lines.append(
            [METHODS[entry["method"]], *(f"{move:.3f}" for move in moves), "-" if off is None else f"{100 * off:.0f}"]
        )
        records += [{"method": entry["method"], **point} for point in entry["points"]]
    notes += [
        "one seed; u is the direction of task 1's move from the start, v that of task 2's move off u; both are lengths "
        "in the space of all weights",
        "off plane: root mean square distance of the checkpoints from the picture, of that from its origin",
        NOTES["plane"],
        "The paper's caption says that Naive and ER drift along u and TMLN moves along v: the columns above are these "
        "moves. Its picture is not in its source, so none stands beside ours.",
    ]
    page = Page("figure2", TITLE, [Sheet(stand.title, lines)] if records else [], records, notes)
    return page if found is None else replace(page, figure=landscape_figure(found))


ITEM = Item("figure2", TITLE, no_runs, render, recordings, picture=True, measures="landscape")
