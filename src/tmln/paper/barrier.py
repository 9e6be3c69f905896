"""Beyond the paper's tables: the loss barrier between consecutive tasks that its abstract claims to lower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tmln.measure.barrier import measure_barriers
from tmln.paper.evidence import Study
from tmln.paper.item import Item, Recorded, no_runs
from tmln.paper.lines import equal_rate
from tmln.paper.measured import Content, measured
from tmln.paper.notes import NOTES
from tmln.paper.page import Page, Sheet
from tmln.paper.scales import Scale, Stand
from tmln.plots.barrier import barrier_figure

TITLE = "Barrier: what earlier tasks lose on the line to the next solution"
BENCHMARK = "split-cifar10"
POINTS = 11
SHOWN = {"barrier": "loss barrier ↓", "climb": "climb ↓", "before": "loss before", "after": "loss after ↓"}


def rows(stand: Stand) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Name, method and changes; one of ours, replay at TMLN's rate, tells the rate from the shield."""
    return {
        "Naive SGD": ("naive", {}),
        "ER": ("er", {}),
        "+ ER at eta/lambda": ("er", equal_rate(stand)),
        "TMLN": ("tmln", {}),
    }


def recordings(scale: Scale) -> list[Recorded]:
    """Whole runs, of which only the solutions are kept."""
    stand = scale.stand(BENCHMARK)
    wanted = rows(stand).values()
    return [
        Recorded(stand.config(m, seed, changes), None, 0) for m, changes in wanted for seed in range(scale.grid_seeds)
    ]


def render(study: Study) -> Page:
    """The loss on the straight line between the solutions of neighbouring tasks."""
    stand, scale = study.stand(BENCHMARK), study.scale
    configs = [recorded.config for recorded in recordings(scale)]
    options: dict[str, Any] = {"points": POINTS, "samples": scale.samples}

    def measure() -> Content:
        return measure_barriers(configs, study.store, **options)

    found, why = measured(study, stand, "barrier", configs, measure, **options)
    page = Page("barrier", TITLE, notes=[stand.remark, *why])
    if found is not None:
        lines = [["method", "n", *SHOWN.values()]]
        for label, entry in zip(rows(stand), found["methods"], strict=True):
            lines.append([label, str(len(entry["seeds"])), *(_cell(entry["summary"][key]) for key in SHOWN)])
            page.notes.extend(f"{label}: {problem}" for problem in entry["problems"])
            page.records.append({"row": label, "n": len(entry["seeds"]), **_flat(entry["summary"])})
        page.sheets.append(Sheet(stand.title, lines))
        if scale.grid_seeds == 1:
            page.notes.append("one seed only, so no deviation")
    page.notes.extend(
        [
            "loss barrier: the most by which the loss of earlier tasks exceeds, on the straight line from one solution "
            "to the next, the straight line between the losses at its ends; climb: by which it exceeds the loss at "
            "the earlier solution. Mean over earlier tasks and pairs, ± sample deviation over seeds",
            "a low barrier is not low forgetting: see the loss before and after",
            NOTES["barrier"],
        ]
    )
    return page if found is None else replace(page, figure=barrier_figure(_named(found, stand)))


def _named(found: Content, stand: Stand) -> Content:
    """With our names, and a look of its own for the row that is ours."""
    entries = [
        {**entry, "label": label, "method": "sgd with replay" if label.startswith("+") else entry["method"]}
        for label, entry in zip(rows(stand), found["methods"], strict=True)
    ]
    return {**found, "methods": entries}


def _cell(summary: Mapping[str, Any]) -> str:
    if not summary["n"] or summary["mean"] is None:
        return "-"
    return f"{summary['mean']:.3f}" + (f" ± {summary['std']:.3f}" if summary["n"] > 1 else "")


def _flat(summary: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{key}_{part}": found[part] for key, found in summary.items() for part in ("mean", "std", "low", "high")}


ITEM = Item("barrier", TITLE, no_runs, render, recordings, picture=True, measures="barrier")
