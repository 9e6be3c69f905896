"""Describe runs as one plain document with everything that the page shows."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tmln
from tmln.analysis.labels import flat_fields
from tmln.analysis.measurements import Analysis
from tmln.analysis.notes import CAPTION, page_notes
from tmln.analysis.published import commands_to_repeat
from tmln.analysis.read import read_analyses, read_results
from tmln.analysis.rows import Row, group_by_table, group_rows, has_several_rates
from tmln.analysis.text_table import LATEX_SIGNS
from tmln.experiments.result import Oracle, Result
from tmln.methods.recipes import BUILT_IN
from tmln.metrics import in_order, metric_of
from tmln.plots.figure import get_look
from tmln.printable import readable
from tmln.report.run_data import (
    describe_classes,
    mean_matrix,
    name_tasks,
    shorten,
    summarise_barriers,
    summarise_curves,
)
from tmln.report.table_data import Table, describe_benchmarks, describe_row, describe_table, make_table


def build_document(runs: Path, oracle: Oracle | None = None) -> dict[str, Any]:
    """Read a folder of runs or a published file into plain values, with what is unreadable."""
    results, problems = read_results(runs, oracle)
    rows = group_rows(results)
    metrics = in_order({metric for row in rows for metric in row.values})
    tables = {name: make_table(name, mine, metrics) for name, mine in group_by_table(rows).items()}
    numbers = {id(row): number for number, row in enumerate(rows)}
    row_of = {result.name: numbers[id(row)] for row in rows for result in row.results}
    analyses = [_analysis(one) for one in read_analyses(runs)]
    warnings = [note.plain() for note in page_notes(rows, problems)]
    complete = {
        "format": 2,
        "title": runs.resolve().stem if runs.is_file() else runs.resolve().name,
        "folder": "runs" if runs.is_file() else shlex.quote(runs.name if runs.is_absolute() else str(runs)),
        "tmln": tmln.__version__,
        "metrics": {name: _metric(name) for name in metrics},
        "columns": [name for name in metrics if _is_column(name, rows)],
        "tables": {
            name: describe_table(table, numbers, sum(one["benchmark"] in ("", name) for one in warnings))
            for name, table in tables.items()
        },
        "benchmarks": describe_benchmarks(rows, {name: one.representatives for name, one in tables.items()}, metrics),
        "rows": [_row(row, tables[row.title]) for row in rows],
        "runs": [_run(result, row_of[result.name]) for result in results if not result.merged],
        "shortcuts": [result.name for result in results if result.merged],
        "problems": [asdict(problem) for problem in problems],
        "warnings": warnings,
        "analyses": analyses,
        "afresh": [name for name, recipe in BUILT_IN.items() if recipe.restarts_each_task],
        "looks": {name: _look(name) for name in sorted({*_list_measured(analyses)})},
        "latex": {"caption": CAPTION, "signs": {chr(sign): written for sign, written in LATEX_SIGNS.items()}},
    }
    return dict(readable(complete))


def _metric(name: str) -> dict[str, Any]:
    """Return a row of the table of metrics, as the page's script reads it."""
    metric = metric_of(name)
    keys = ("heading", "title", "about", "more_is_better", "percent")
    return {key: getattr(metric, key) for key in keys}


def _is_column(name: str, rows: Iterable[Row]) -> bool:
    """Tell whether the page shows a metric as a column from the start."""
    shown = metric_of(name).shown
    return shown == "always" or (shown == "differs" and has_several_rates(rows))


def _row(row: Row, table: Table) -> dict[str, Any]:
    first = row.results[0]
    fields = flat_fields({key: value for key, value in first.config.items() if key != "seed"})
    commands, why = commands_to_repeat(first, [result.seed for result in row.results])
    return {
        "benchmark": row.title,
        "of": row.benchmark,
        "label": row.label,
        "method": row.method,
        "contender": row.contender,
        **describe_row(table, row),
        "look": _look(row.method),
        "fields": {key.removeprefix("settings."): value for key, value in fields.items()},
        "tasks": name_tasks(row.results),
        "matrix": shorten(mean_matrix(row.results)),
        "curves": summarise_curves(row.results),
        "classes": describe_classes(row.results),
        "missing": list(row.missing),
        "competes": row.competes,
        "commands": commands,
        "no_command": why,
    }


def _look(method: str) -> dict[str, str]:
    look = get_look(method)
    return {"colour": look.colour, "symbol": look.symbol, "dash": look.dash}


def _analysis(found: Analysis) -> dict[str, Any]:
    content = found.content
    if found.kind == "barrier":
        content = summarise_barriers(content)
    return {"kind": found.kind, "name": found.name, "content": shorten(content)}


def _list_measured(analyses: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the methods that analyses are of: keys of a mapping, or entries that name theirs."""
    for analysis in analyses:
        found = analysis["content"].get("methods")
        for one in found if isinstance(found, (list, Mapping)) else ():
            yield str(one.get("method")) if isinstance(one, Mapping) else str(one)


def _run(result: Result, row: int) -> dict[str, Any]:
    return {
        "name": result.name,
        "row": row,
        "seed": result.seed,
        "metrics": {key: _number(value) for key, value in result.metrics.items()},
        "accuracy": shorten(result.accuracy),
        "oracle": result.oracle,
        "diverged": result.diverged,
        "steps": _number(result.steps or math.nan),
        "parameters": _number(result.parameters or math.nan),
        "versions": {str(k): str(v) for k, v in result.versions.items()},
        "machine": flat_fields(result.machine) if result.machine else {},
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
