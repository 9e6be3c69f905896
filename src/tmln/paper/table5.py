"""Table 5: the losses of tasks 1 and 2 at the beginning and after each, on Split CIFAR-100."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tmln.analysis.requested_rows import NOT_RUN
from tmln.analysis.statistics import Summary, summarise
from tmln.measure.losses import STAGES, measure_trajectory_losses
from tmln.paper.evidence import Study
from tmln.paper.item import Item, Recorded, no_runs
from tmln.paper.measured import Content, measured
from tmln.paper.notes import NOTES
from tmln.paper.page import Page, Sheet
from tmln.paper.published import TABLE5
from tmln.paper.scales import Scale
from tmln.paper.table1 import METHODS

TITLE = "Table 5: losses along the way"
BENCHMARK = "split-cifar100"
TASKS = ("task 1", "task 2")
CHECKPOINTS = 20  # of each task of seed 0, whose recordings Figure 2 is drawn from; of the others only solutions


def recordings(scale: Scale) -> list[Recorded]:
    """Two tasks of each seed; the way of the first seed is that of Figure 2."""
    stand = scale.stand(BENCHMARK)
    seeds = range(scale.seeds)
    return [Recorded(stand.config(m, seed), 2, 0 if seed else CHECKPOINTS) for seed in seeds for m in TABLE5]


def render(study: Study) -> Page:
    """The losses of both tasks at the start and at both solutions."""
    stand = study.stand(BENCHMARK)
    wanted = recordings(study.scale)

    def measure() -> Content:
        rows = []
        for checkpoints in (CHECKPOINTS, 0):
            configs = [recorded.config for recorded in wanted if recorded.checkpoints == checkpoints]
            rows += measure_trajectory_losses(configs, study.store, checkpoints=checkpoints)
        return {"rows": rows}

    found, why = measured(study, stand, "losses", [recorded.config for recorded in wanted], measure)
    rows = [] if found is None else found["rows"]
    sheets, records = [], []
    for number, task in enumerate(TASKS):
        losses = {method: _summaries(rows, method, task) for method in TABLE5}
        sheets.append(Sheet(f"loss of {task}, {stand.title}", _lines(losses, number, bool(rows))))
        records += _records(losses, number)
    said = "ours: mean cross entropy over all test samples of the task, ± sample deviation over seeds"
    return Page("table5", TITLE, sheets, records, [stand.remark, *why, *_problems(rows), NOTES["losses"], said])


def _summaries(rows: Sequence[Mapping[str, Any]], method: str, task: str) -> list[Summary]:
    """Over seeds, of each moment."""
    mine = [row["losses"][task] for row in rows if row["method"] == method and row["losses"]]
    return [summarise([losses[moment] for losses in mine if losses[moment] is not None]) for moment in STAGES]


def _lines(found: Mapping[str, Sequence[Summary]], number: int, ran: bool) -> list[list[str]]:
    lines = [["method", "n", *(text for moment in STAGES for text in (moment, "paper"))]]
    for method, summaries in found.items():
        texts = [_cell(summary, ran) for summary in summaries]
        pairs = zip(texts, TABLE5[method][number], strict=True)
        cells = [text for ours, paper in pairs for text in (ours, f"{paper:.4f}")]
        lines.append([METHODS[method], str(summaries[-1].n), *cells])
    return lines


def _cell(summary: Summary, ran: bool) -> str:
    if not summary.n:
        return "diverged" if ran else NOT_RUN
    return f"{summary.mean:.4f}" + (f" ± {summary.std:.4f}" if summary.n > 1 else "")


def _problems(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    said = [
        f"{METHODS[row['method']]}, seed {row['seed']}: {row['problem']}; left out" for row in rows if row["problem"]
    ]
    seeds = {row["seed"] for row in rows}
    return [*said, "one seed only, so no deviation"] if len(seeds) == 1 else said


def _records(found: Mapping[str, Sequence[Summary]], number: int) -> list[Mapping[str, Any]]:
    return [
        {
            "task": TASKS[number],
            "method": method,
            "moment": moment,
            "n": summary.n,
            "mean": summary.mean,
            "std": summary.std,
            "paper": paper,
        }
        for method, summaries in found.items()
        for moment, summary, paper in zip(STAGES, summaries, TABLE5[method][number], strict=True)
    ]


ITEM = Item("table5", TITLE, no_runs, render, recordings, measures="losses")
