"""Figure 3: forgetting against intransigence over the grids of Table 6, beside printed points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tmln.analysis.fronts import Fronts, configuration_lines, fronts_of, volume_lines, volume_notes
from tmln.analysis.rows import Row
from tmln.paper.published import TABLE6, select_notes
from tmln.paper.scales import TITLES
from tmln.paper.study import Item, Page, Sheet, Study, find_row
from tmln.paper.tables import SWEPT, TABLE6_BENCHMARK, TABLE6_ITEM, TableRow, list_table6_rows
from tmln.plots.fronts import pareto_figure

TITLE = "Figure 3: stability against plasticity"
SAID = ("dominance", "rwalk", "ocar grid", "int", "int reference")


def render(study: Study) -> Page:
    """Return FM against INT, ours and printed, each with fronts and hypervolumes."""
    setup = study.setup(TABLE6_BENCHMARK)
    fronts = [_make_printed()]
    rows, missing = _rows(study)
    page = Page("figure3", TITLE, notes=[setup.remark, *missing])
    if rows:
        ours = replace(fronts_of(rows), benchmark=f"ours: {setup.benchmark}")
        fronts.insert(0, ours)
        page.notes.extend(volume_notes(ours))
        page.sheets.append(Sheet(f"{ours.benchmark}, configurations", configuration_lines(ours)))
    for each in fronts:
        page.sheets.append(Sheet(f"{each.benchmark}, hypervolumes", volume_lines(each)))
        page.records.extend(_records(each))
    page.notes.extend(select_notes(SAID, study.scale))
    return replace(page, figure=pareto_figure(fronts, shared=True))


def _rows(study: Study) -> tuple[list[Row], list[str]]:
    """Return the runs of Table 6 by method and swept setting, and what is missing."""
    setup = study.setup(TABLE6_BENCHMARK)
    rows, lacking = [], []
    for line in (line for line in list_table6_rows(setup) if not line.joint):
        row = find_row(study, setup, line.method, line.changes, study.scale.grid_seeds).row
        if row is None:
            lacking.append(_label(line))
        else:
            rows.append(replace(row, label=_label(line)))
    if not rows:
        get = f": tmln data get {setup.missing}" if setup.missing else ""
        return [], [f"{setup.title} was not run{get}; only the paper's points are drawn"]
    return rows, [f"not run, so on no front: {', '.join(lacking)}"] if lacking else []


def _label(line: TableRow) -> str:
    return f"{line.method} {line.cells[1].replace(' = ', '=')}"


def _make_printed() -> Fronts:
    """Return the paper's Table 6 as points without deviation."""
    rows = []
    for method, grid in TABLE6.items():
        for value, cells in grid.items():
            values = {metric: {0: cells[metric].mean / 100} for metric in ("int", "fm")}
            label = f"{method} {SWEPT[method].symbol}={value:g}"
            rows.append(Row(TABLE6_BENCHMARK, label, values, oracles=("prefix",)))
    return replace(fronts_of(rows), benchmark=f"paper: {TITLES[TABLE6_BENCHMARK]}")


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


ITEM = Item("figure3", TITLE, TABLE6_ITEM.runs, render, picture=True)
