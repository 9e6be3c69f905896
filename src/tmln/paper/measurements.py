"""Table 4, Table 5, Figure 2 and the loss barrier: what is measured, not read from results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tmln.analysis.measurements import format_interval, format_ratio, overhead_notes
from tmln.analysis.statistics import Summary, summarise
from tmln.measure.barrier import measure_barriers
from tmln.measure.landscape import measure_landscape
from tmln.measure.losses import STAGES, measure_trajectory_losses
from tmln.measure.overhead import measure_overhead
from tmln.methods.recipes import RECIPES
from tmln.paper.published import NOTES, TABLE4, TABLE5, select_notes
from tmln.paper.scales import BenchmarkSetup, Scale
from tmln.paper.study import NOT_RUN, Content, Item, Page, RecordingRequest, Sheet, Study, measure_once, no_runs
from tmln.paper.tables import METHODS, match_rate
from tmln.plots.barrier import barrier_figure
from tmln.plots.landscape import format_residual, landscape_figure
from tmln.plots.overhead import overhead_figure

TABLE4_TITLE = "Table 4: overhead"
TABLE4_BENCHMARK = "split-cifar100"
TABLE4_METHODS = tuple(method for method in METHODS if not RECIPES[method].joint)
TABLE4_STEPS = 50  # per turn: includes whatever is periodic in a method
TABLE4_NOTES = ("time", "memory", "width")
TABLE4_HEADING = [
    "method",
    "step",
    "95%",
    "run",
    "paper",
    "holds",
    "paper",
    "held MB",
    "host GB",
    "GPU GB",
    "paper GPU GB",
]


def render_table4(study: Study) -> Page:
    """Return time and memory relative to naive SGD, measured here, beside the printed numbers."""
    setup = study.setup(TABLE4_BENCHMARK)
    configs = [setup.config(method) for method in TABLE4_METHODS]
    rounds = study.scale.rounds

    def measure() -> Content:
        return measure_overhead(configs, rounds, TABLE4_STEPS)

    found, why = measure_once(study, setup, "overhead", configs, measure, rounds=rounds, steps=TABLE4_STEPS)
    costs = {} if found is None else found["methods"]
    lines = [_table4_line(method, costs.get(method)) for method in TABLE4_METHODS]
    texts = [] if found is None else overhead_notes(found)
    notes = [
        setup.remark,
        *why,
        "host GB: peak of the process; GPU GB: peak of its tensors on the GPU, none on a CPU; paper: one Tesla P100",
        *texts,
        *select_notes(TABLE4_NOTES, study.scale),
    ]
    page = Page("table4", TABLE4_TITLE, [Sheet(setup.title, [TABLE4_HEADING, *lines])], notes=notes)
    page.records.extend(_table4_record(method, costs.get(method)) for method in TABLE4_METHODS)
    return page if found is None else replace(page, figure=overhead_figure(found))


def _table4_line(method: str, cost: Content | None) -> list[str]:
    printed = TABLE4.get(method)
    paper = ("-", "-") if printed is None else (f"{printed.relative_time:.2f}", printed.auxiliary)
    memory = "-" if printed is None else f"{printed.peak_gb:.2f}"
    if cost is None:
        return [METHODS[method], *[NOT_RUN] * 3, paper[0], NOT_RUN, paper[1], NOT_RUN, NOT_RUN, NOT_RUN, memory]
    ratio, kept = cost["step"]["ratio"], cost["auxiliary"]
    times = [
        format_ratio(ratio["mean"]),
        "-" if method == "naive" else format_interval(ratio),
        format_ratio(cost["training"]["ratio"]["mean"]),
    ]
    sizes = [
        format_ratio(size and size / unit)
        for size, unit in (
            (kept["held_bytes"], 1e6),
            (cost["peak_bytes"], 1e9),
            (cost.get("device_peak_bytes"), 1e9),
        )
    ]
    return [METHODS[method], *times, paper[0], kept["formula"] or "-", paper[1], *sizes, memory]


def _table4_record(method: str, cost: Content | None) -> Mapping[str, Any]:
    printed = TABLE4.get(method)
    kept = {} if cost is None else cost["auxiliary"]
    return {
        "method": method,
        **{f"step_ratio_{part}": cost and cost["step"]["ratio"][part] for part in ("mean", "low", "high", "n")},
        "training_ratio": cost and cost["training"]["ratio"]["mean"],
        "holds": kept.get("formula"),
        "held_bytes": kept.get("held_bytes"),
        "peak_bytes": cost and cost["peak_bytes"],
        "device_peak_bytes": cost and cost.get("device_peak_bytes"),
        "diverged": cost and cost["diverged"],
        "paper_ratio": printed and printed.relative_time,
        "paper_holds": printed and printed.auxiliary,
        "paper_peak_gb": printed and printed.peak_gb,
    }


TABLE4_ITEM = Item("table4", TABLE4_TITLE, no_runs, render_table4, picture=True, measures="overhead")


TABLE5_TITLE = "Table 5: losses along the way"
TABLE5_BENCHMARK = "split-cifar100"
TABLE5_TASKS = ("task 1", "task 2")
CHECKPOINTS = 20  # per task of seed 0, which Figure 2 shows; of other seeds only solutions


def list_table5_recordings(scale: Scale) -> list[RecordingRequest]:
    """Return two tasks of each seed; the first seed's trajectory is that of Figure 2."""
    setup = scale.setup(TABLE5_BENCHMARK)
    seeds = range(scale.seeds)
    return [RecordingRequest(setup.config(m, seed), 2, 0 if seed else CHECKPOINTS) for seed in seeds for m in TABLE5]


def render_table5(study: Study) -> Page:
    """Return the losses of both tasks at the start and at both solutions."""
    setup = study.setup(TABLE5_BENCHMARK)
    wanted = list_table5_recordings(study.scale)

    def measure() -> Content:
        rows = []
        for checkpoints in (CHECKPOINTS, 0):
            configs = [recorded.config for recorded in wanted if recorded.checkpoints == checkpoints]
            rows += measure_trajectory_losses(configs, study.store, checkpoints=checkpoints)
        return {"rows": rows}

    found, why = measure_once(study, setup, "losses", [recorded.config for recorded in wanted], measure)
    rows = [] if found is None else found["rows"]
    sheets, records = [], []
    for number, task in enumerate(TABLE5_TASKS):
        losses = {method: _summaries(rows, method, task) for method in TABLE5}
        sheets.append(Sheet(f"loss of {task}, {setup.title}", _table5_lines(losses, number, bool(rows))))
        records += _table5_records(losses, number)
    note = "ours: mean cross entropy over all test samples of the task, ± sample deviation over seeds"
    return Page("table5", TABLE5_TITLE, sheets, records, [setup.remark, *why, *_problems(rows), NOTES["losses"], note])


def _summaries(rows: Sequence[Mapping[str, Any]], method: str, task: str) -> list[Summary]:
    """Return a summary over seeds for each stage."""
    mine = [row["losses"][task] for row in rows if row["method"] == method and row["losses"]]
    return [summarise([losses[stage] for losses in mine if losses[stage] is not None]) for stage in STAGES]


def _table5_lines(found: Mapping[str, Sequence[Summary]], number: int, ran: bool) -> list[list[str]]:
    lines = [["method", "n", *(text for stage in STAGES for text in (stage, "paper"))]]
    for method, summaries in found.items():
        texts = [_table5_cell(summary, ran) for summary in summaries]
        pairs = zip(texts, TABLE5[method][number], strict=True)
        cells = [text for ours, paper in pairs for text in (ours, f"{paper:.4f}")]
        lines.append([METHODS[method], str(summaries[-1].n), *cells])
    return lines


def _table5_cell(summary: Summary, ran: bool) -> str:
    if not summary.n:
        return "diverged" if ran else NOT_RUN
    return f"{summary.mean:.4f}" + (f" ± {summary.std:.4f}" if summary.n > 1 else "")


def _problems(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = [
        f"{METHODS[row['method']]}, seed {row['seed']}: {row['problem']}; left out" for row in rows if row["problem"]
    ]
    seeds = {row["seed"] for row in rows}
    return [*notes, "one seed only, so no deviation"] if len(seeds) == 1 else notes


def _table5_records(found: Mapping[str, Sequence[Summary]], number: int) -> list[Mapping[str, Any]]:
    return [
        {
            "task": TABLE5_TASKS[number],
            "method": method,
            "moment": stage,
            "n": summary.n,
            "mean": summary.mean,
            "std": summary.std,
            "paper": paper,
        }
        for method, summaries in found.items()
        for stage, summary, paper in zip(STAGES, summaries, TABLE5[method][number], strict=True)
    ]


TABLE5_ITEM = Item("table5", TABLE5_TITLE, no_runs, render_table5, list_table5_recordings, measures="losses")


FIGURE2_TITLE = "Figure 2: ways through the loss landscape"
FIGURE2_HEADING = ["method", "task 1: along u", "task 2: along u", "task 2: along v", "off plane %"]


def list_figure2_recordings(scale: Scale) -> list[RecordingRequest]:
    """Return two tasks of each method, with the trajectory between them."""
    setup = scale.setup(TABLE5_BENCHMARK)
    return [RecordingRequest(setup.config(method), 2, CHECKPOINTS) for method in TABLE5]


def render_figure2(study: Study) -> Page:
    """Return the loss of task 1 in the plane through the start and both solutions."""
    setup, scale = study.setup(TABLE5_BENCHMARK), study.scale
    configs = [recorded.config for recorded in list_figure2_recordings(scale)]
    options: dict[str, Any] = {"resolution": scale.resolution, "samples": scale.samples, "checkpoints": CHECKPOINTS}

    def measure() -> Content:
        return measure_landscape(configs, study.store, **options)

    found, why = measure_once(study, setup, "landscape", configs, measure, **options)
    notes = [setup.remark, *why]
    lines = [FIGURE2_HEADING]
    records: list[Mapping[str, Any]] = []
    for entry in [] if found is None else found["methods"]:
        if entry["problem"]:
            notes.append(f"{METHODS[entry['method']]} is not drawn: {entry['problem']}")
            continue
        start, first, second = entry["markers"].values()
        moves = [first["x"] - start["x"], second["x"] - first["x"], second["y"] - first["y"]]
        off = format_residual(entry["residual"]).rstrip("%")
        lines.append([METHODS[entry["method"]], *(f"{move:.3f}" for move in moves), off])
        records += [{"method": entry["method"], **point} for point in entry["points"]]
    notes += [
        "one seed; u is the direction of task 1's move from the start, v that of task 2's move off u; both are lengths "
        "in the space of all weights",
        "off plane: root mean square distance of the checkpoints from the picture, of that from its origin",
        NOTES["plane"],
        "The paper's caption says that Naive and ER drift along u and TMLN moves along v: the columns above are these "
        "moves. Its picture is not in its source, so none stands beside ours.",
    ]
    page = Page("figure2", FIGURE2_TITLE, [Sheet(setup.title, lines)] if records else [], records, notes)
    return page if found is None else replace(page, figure=landscape_figure(found))


FIGURE2_ITEM = Item(
    "figure2", FIGURE2_TITLE, no_runs, render_figure2, list_figure2_recordings, picture=True, measures="landscape"
)


BARRIER_TITLE = "Barrier: what earlier tasks lose on the line to the next solution"
BARRIER_BENCHMARK = "split-cifar10"
BARRIER_POINTS = 11
BARRIER_COLUMNS = {"barrier": "loss barrier ↓", "climb": "climb ↓", "before": "loss before", "after": "loss after ↓"}


def list_barrier_rows(setup: BenchmarkSetup) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return name -> method and changes; replay at TMLN's rate separates rate from protection."""
    return {
        "Naive SGD": ("naive", {}),
        "ER": ("er", {}),
        "+ ER at eta/lambda": ("er", match_rate(setup)),
        "TMLN": ("tmln", {}),
    }


def list_barrier_recordings(scale: Scale) -> list[RecordingRequest]:
    """Return whole runs, of which only the solutions are kept."""
    setup = scale.setup(BARRIER_BENCHMARK)
    wanted = list_barrier_rows(setup).values()
    return [
        RecordingRequest(setup.config(m, seed, changes), None, 0)
        for m, changes in wanted
        for seed in range(scale.grid_seeds)
    ]


def render_barrier(study: Study) -> Page:
    """Return the loss on the straight line between the solutions of consecutive tasks."""
    setup, scale = study.setup(BARRIER_BENCHMARK), study.scale
    configs = [recorded.config for recorded in list_barrier_recordings(scale)]
    options: dict[str, Any] = {"points": BARRIER_POINTS, "samples": scale.samples}

    def measure() -> Content:
        return measure_barriers(configs, study.store, **options)

    found, why = measure_once(study, setup, "barrier", configs, measure, **options)
    page = Page("barrier", BARRIER_TITLE, notes=[setup.remark, *why])
    if found is not None:
        lines = [["method", "n", *BARRIER_COLUMNS.values()]]
        for label, entry in zip(list_barrier_rows(setup), found["methods"], strict=True):
            lines.append(
                [label, str(len(entry["seeds"])), *(_barrier_cell(entry["summary"][key]) for key in BARRIER_COLUMNS)]
            )
            page.notes.extend(f"{label}: {problem}" for problem in entry["problems"])
            page.records.append({"row": label, "n": len(entry["seeds"]), **_flatten(entry["summary"])})
        page.sheets.append(Sheet(setup.title, lines))
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
    return page if found is None else replace(page, figure=barrier_figure(_rename_rows(found, setup)))


def _rename_rows(found: Content, setup: BenchmarkSetup) -> Content:
    """Return the measurement with our names, and another look for our own row."""
    entries = [
        {**entry, "label": label, "method": "sgd with replay" if label.startswith("+") else entry["method"]}
        for label, entry in zip(list_barrier_rows(setup), found["methods"], strict=True)
    ]
    return {**found, "methods": entries}


def _barrier_cell(summary: Mapping[str, Any]) -> str:
    if not summary["n"] or summary["mean"] is None:
        return "-"
    return f"{summary['mean']:.3f}" + (f" ± {summary['std']:.3f}" if summary["n"] > 1 else "")


def _flatten(summary: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{key}_{part}": found[part] for key, found in summary.items() for part in ("mean", "std", "low", "high")}


BARRIER_ITEM = Item(
    "barrier", BARRIER_TITLE, no_runs, render_barrier, list_barrier_recordings, picture=True, measures="barrier"
)
