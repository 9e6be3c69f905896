"""Figure 3: forgetting against intransigence over the grids of Table 6, ours beside the paper's printed points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tmln.analysis.fronts import Fronts, fronts_of
from tmln.analysis.rows import Row
from tmln.analysis.tables import configuration_lines, volume_lines, volume_notes
from tmln.paper.evidence import Study, find
from tmln.paper.item import Item
from tmln.paper.lines import Line
from tmln.paper.notes import notes_at
from tmln.paper.page import Page, Sheet
from tmln.paper.published import TABLE6
from tmln.paper.scales import TITLES
from tmln.paper.table6 import BENCHMARK, SWEPT, lines, runs
from tmln.plots.fronts import pareto_figure

TITLE = "Figure 3: stability against plasticity"
SAID = ("dominance", "rwalk", "ocar grid", "int", "int reference")


def render(study: Study) -> Page:
    """FM against INT, ours and the printed points, each with fronts and hypervolumes."""
    stand = study.stand(BENCHMARK)
    fronts = [_printed()]
    rows, missing = _rows(study)
    page = Page("figure3", TITLE, notes=[stand.remark, *missing])
    if rows:
        ours = replace(fronts_of(rows), benchmark=f"ours: {stand.benchmark}")
        fronts.insert(0, ours)
        page.notes.extend(volume_notes(ours))
        page.sheets.append(Sheet(f"{ours.benchmark}, configurations", configuration_lines(ours)))
    for each in fronts:
        page.sheets.append(Sheet(f"{each.benchmark}, hypervolumes", volume_lines(each)))
        page.records.extend(_records(each))
    page.notes.extend(notes_at(SAID, study.scale))
    return replace(page, figure=pareto_figure(fronts, shared=True))


def _rows(study: Study) -> tuple[list[Row], list[str]]:
    """The runs of Table 6, by the method and the setting that varies; and what is not there."""
    stand = study.stand(BENCHMARK)
    rows, lacking = [], []
    for line in (line for line in lines(stand) if not line.joint):
        row = find(study, stand, line.method, line.changes, study.scale.grid_seeds).row
        if row is None:
            lacking.append(_label(line))
        else:
            rows.append(replace(row, label=_label(line)))
    if not rows:
        get = f": tmln data get {stand.missing}" if stand.missing else ""
        return [], [f"{stand.title} was not run{get}; only the paper's points are drawn"]
    return rows, [f"not run, so on no front: {', '.join(lacking)}"] if lacking else []


def _label(line: Line) -> str:
    return f"{line.method} {line.cells[1].replace(' = ', '=')}"


def _printed() -> Fronts:
    """The paper's Table 6 as points without spread."""
    rows = []
    for method, grid in TABLE6.items():
        for value, cells in grid.items():
            values = {metric: {0: cells[metric].mean / 100} for metric in ("int", "fm")}
            label = f"{method} {SWEPT[method].symbol}={value:g}"
            rows.append(Row(BENCHMARK, label, values, oracles=("prefix",)))
    return replace(fronts_of(rows), benchmark=f"paper: {TITLES[BENCHMARK]}")


def _records(fronts: Fronts) -> list[Mapping[str, Any]]:
    return [
        {
            "whose": fronts.benchmark,
            "method": point.method,
            "setting": point.settings,
            "n": min(point.x.n, point.y.n),
            "int_mean": 100 * point.x.mean,
            "int_std": 100 * point.x.std,
            "fm_mean": 100 * point.y.mean,
            "fm_std": 100 * point.y.std,
            "own_front": number in fronts.methods[point.method].members,
            "skyline": number in fronts.skyline.members,
        }
        for number, point in enumerate(fronts.points)
    ]


ITEM = Item("figure3", TITLE, runs, render, picture=True)
