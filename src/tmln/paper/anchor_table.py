"""Anchors: published accuracies of other libraries beside ours, under the same protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tmln.analysis.statistics import Summary
from tmln.experiments.config import RunConfig, run_id
from tmln.paper.anchors import Anchor
from tmln.paper.scales import Scale, missing_data
from tmln.paper.study import Item, Page, Sheet, Study, read_requested_row

TITLE = "Anchors: numbers that others publish, run again"
HEADING = ["benchmark", "method", "protocol", "n", "ACC %", "published", "difference", "agrees"]


def list_runs(scale: Scale) -> list[RunConfig]:
    """Return the runs of every anchor."""
    return [anchor.config(seed) for anchor in scale.anchors for seed in range(min(anchor.seeds, scale.seeds))]


def render(study: Study) -> Page:
    """Return one row per anchor, with the reason where the numbers may differ."""
    page = Page("anchors", TITLE)
    lines = [HEADING]
    for anchor in study.scale.anchors:
        names = {seed: run_id(anchor.config(seed)) for seed in range(min(anchor.seeds, study.scale.seeds))}
        absent = None if study.published is not None else missing_data(anchor.benchmark)
        unfinished = f"{absent} is not at hand: tmln data get {absent}" if absent else "not finished"
        if study.published is not None:
            unfinished = "not among the published runs"
        reasons = {name: study.failed.get(name, unfinished) for name in names.values()}
        found = read_requested_row(names, study.result, reasons.__getitem__)
        ours = found.summary("acc")
        difference = "-" if not ours.n else f"{100 * ours.mean - anchor.accuracy:+.1f}"
        lines.append(
            [anchor.benchmark, anchor.method, anchor.protocol, str(ours.n), found.text("acc"), anchor.printed]
            + [difference, judge(anchor, ours)]
        )
        page.records.append(_record(anchor, ours))
        label = f"{anchor.benchmark}, {anchor.method}"
        page.notes.extend([f"{label}: {anchor.source}{'; ' if anchor.reason else ''}{anchor.reason}"])
        page.notes.extend(found.notes(label, has_int=False))
    if len(lines) == 1:
        page.notes.append(f"no anchors at scale {study.scale.name}: their protocols are those of --scale full")
    else:
        page.sheets.append(Sheet(TITLE, lines))
    page.notes.append(
        "agrees: the published number lies in our 95% t-interval, widened by its rounding; with one seed there is none"
    )
    return page


def judge(anchor: Anchor, ours: Summary) -> str:
    """Return whether the published number lies in our interval, widened by its rounding."""
    if ours.n < 2:
        return "-"
    rounding = 0.5 if float(anchor.accuracy).is_integer() else 0.05
    distance = abs(100 * ours.mean - anchor.accuracy)
    if distance <= 100 * (ours.high - ours.mean) + rounding:
        return "yes"
    return "no: ours is higher" if 100 * ours.mean > anchor.accuracy else "no: ours is lower"


def _record(anchor: Anchor, ours: Summary) -> Mapping[str, Any]:
    return {
        "benchmark": anchor.benchmark,
        "method": anchor.method,
        "metric": "acc",
        **ours.parts(scale=100),
        "published": anchor.accuracy,
        "source": anchor.source,
    }


ITEM = Item("anchors", TITLE, list_runs, render)
