"""Table 4: overhead over naive training in time and memory, on Split CIFAR-100."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tmln.analysis.measurements import overhead_notes
from tmln.analysis.requested_rows import NOT_RUN
from tmln.measure.overhead import measure_overhead
from tmln.methods.recipes import RECIPES
from tmln.paper.notes import select_notes
from tmln.paper.published import TABLE4
from tmln.paper.study import Content, Item, Page, Sheet, Study, measure_once, no_runs
from tmln.paper.tables import METHODS
from tmln.plots.overhead import overhead_figure

TITLE = "Table 4: overhead"
BENCHMARK = "split-cifar100"
STEPS = 50  # per turn: includes whatever is periodic in a method
SAID = ("time", "memory", "width")
HEADING = ["method", "step", "95%", "run", "paper", "holds", "paper", "held MB", "peak GB", "paper"]


def render(study: Study) -> Page:
    """Return time and memory relative to naive SGD, measured here, beside the printed numbers."""
    setup = study.setup(BENCHMARK)
    methods = [method for method in METHODS if not RECIPES[method].joint]
    configs = [setup.config(method) for method in methods]
    rounds = study.scale.rounds

    def measure() -> Content:
        return measure_overhead(configs, rounds, STEPS)

    found, why = measure_once(study, setup, "overhead", configs, measure, rounds=rounds, steps=STEPS)
    costs = {} if found is None else found["methods"]
    lines = [_line(method, costs.get(method)) for method in methods]
    said = [] if found is None else overhead_notes(found)
    notes = [setup.remark, *why, "paper: one Tesla P100; GB are of its memory", *said, *select_notes(SAID, study.scale)]
    page = Page("table4", TITLE, [Sheet(setup.title, [HEADING, *lines])], notes=notes)
    page.records.extend(_record(method, costs.get(method)) for method in methods)
    return page if found is None else replace(page, figure=overhead_figure(found))


def _line(method: str, cost: Content | None) -> list[str]:
    printed = TABLE4.get(method)
    paper = ("-", "-") if printed is None else (f"{printed.relative_time:.2f}", printed.auxiliary)
    memory = "-" if printed is None else f"{printed.peak_gb:.2f}"
    if cost is None:
        return [METHODS[method], *[NOT_RUN] * 3, paper[0], NOT_RUN, paper[1], NOT_RUN, NOT_RUN, memory]
    ratio, kept = cost["step"]["ratio"], cost["auxiliary"]
    times = [
        _number(ratio["mean"]),
        "-" if method == "naive" else _interval(ratio),
        _number(cost["training"]["ratio"]["mean"]),
    ]
    sizes = [_number(kept["held_bytes"], 1e6), _number(cost["peak_bytes"], 1e9)]
    return [METHODS[method], *times, paper[0], kept["formula"] or "-", paper[1], *sizes, memory]


def _record(method: str, cost: Content | None) -> Mapping[str, Any]:
    printed = TABLE4.get(method)
    kept = {} if cost is None else cost["auxiliary"]
    return {
        "method": method,
        **{f"step_ratio_{part}": cost and cost["step"]["ratio"][part] for part in ("mean", "low", "high", "n")},
        "training_ratio": cost and cost["training"]["ratio"]["mean"],
        "holds": kept.get("formula"),
        "held_bytes": kept.get("held_bytes"),
        "peak_bytes": cost and cost["peak_bytes"],
        "diverged": cost and cost["diverged"],
        "paper_ratio": printed and printed.relative_time,
        "paper_holds": printed and printed.auxiliary,
        "paper_peak_gb": printed and printed.peak_gb,
    }


def _interval(ratio: Mapping[str, Any]) -> str:
    return "-" if ratio["low"] is None else f"[{ratio['low']:.2f}, {ratio['high']:.2f}]"


def _number(value: float | None, unit: float = 1.0) -> str:
    return "-" if value is None else f"{value / unit:.2f}"


ITEM = Item("table4", TITLE, no_runs, render, picture=True, measures="overhead")
