"""What runs say as one plain document: what the page embeds, and nothing of the machine it was made on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tmln
from tmln.draw.palette import look_of
from tmln.lab.result import Oracle, Result
from tmln.metrics import in_order, metric_of
from tmln.printable import readable
from tmln.recipes import RECIPES
from tmln.report.benchmarks import benchmarks_of
from tmln.report.classes import classes_of
from tmln.report.faces import Face, faces_of
from tmln.report.tasks import task_names
from tmln.report.verdict import Marks, marks_of, verdict
from tmln.results.notes import CAPTION, page_notes
from tmln.results.published import commands_to_repeat
from tmln.results.read import read_analyses, read_results
from tmln.results.rows import Row, comparable, flat_fields, rows_of
from tmln.results.summary_text import write_headline, write_summary
from tmln.results.textgrid import LATEX_SIGNS

DIGITS = 5  # of accuracies in matrices and of what pictures are drawn from; metrics keep all


def document(runs: Path, oracle: Oracle | None = None) -> dict[str, Any]:
    """Plain values only; whatever cannot be read is named in it, with the reason."""
    results, problems = read_results(runs, oracle)
    rows = rows_of(results)
    numbers = {result.name: number for number, row in enumerate(rows) for result in row.results}
    analyses = [{"kind": a.kind, "name": a.name, "content": _shorter(a.content)} for a in read_analyses(runs)]
    there = {metric for row in rows for metric in row.values}
    tables = comparable(rows)
    marks = {name: marks_of(mine, in_order(there)) for name, mine in tables.items()}
    faces = {name: faces_of(mine) for name, mine in tables.items()}
    complete = {
        "format": 1,
        "title": runs.resolve().stem if runs.is_file() else runs.resolve().name,
        "tmln": tmln.__version__,
        "metrics": {name: _metric(name) for name in in_order(there)},
        "headlines": {name: write_headline(mine) for name, mine in tables.items()},
        "sentences": {name: write_summary(mine) for name, mine in tables.items()},
        "verdicts": {name: verdict(mine) for name, mine in tables.items()},
        "benchmarks": benchmarks_of(rows, faces, in_order(there)),
        "rows": [_row(row, marks[row.where], faces[row.where][row.contender]) for row in rows],
        "runs": [_run(result, numbers[result.name]) for result in results if not result.merged],
        "shortcuts": [result.name for result in results if result.merged],
        "problems": [asdict(problem) for problem in problems],
        "warnings": [note.plain() for note in page_notes(rows, problems)],
        "analyses": analyses,
        "afresh": [name for name, recipe in RECIPES.items() if recipe.afresh],
        "looks": {name: _look(name) for name in sorted({*_measured(analyses)})},
        "latex": {"caption": CAPTION, "signs": {chr(sign): written for sign, written in LATEX_SIGNS.items()}},
    }
    return dict(readable(complete))


def _metric(name: str) -> dict[str, Any]:
    """A row of the table of metrics, as the page's script reads it."""
    metric = metric_of(name)
    ends = [end if math.isfinite(end) else None for end in metric.within]
    keys = ("heading", "title", "about", "more_is_better", "percent", "digits", "contest", "shown")
    return {**{key: getattr(metric, key) for key in keys}, "within": ends}


def _row(row: Row, marks: Marks, face: Face) -> dict[str, Any]:
    first = row.results[0]
    fields = flat_fields({key: value for key, value in first.config.items() if key != "seed"})
    commands, why = commands_to_repeat(first, [result.seed for result in row.results])
    return {
        "benchmark": row.where,
        "of": row.benchmark,
        "label": row.label,
        "method": first.method,
        "contender": row.contender,
        "face": row is face.row,
        "chosen": face.words if row is face.row else "",
        "fair": face.fair,
        "look": _look(first.method),
        "fields": {key.removeprefix("settings."): value for key, value in fields.items()},
        "tasks": _tasks(row.results),
        "classes": classes_of(row.results),
        "missing": list(row.missing),
        "competes": row.competes,
        "contestant": row.label in marks.contestants,
        "passed_over": row.label in marks.passed_over,
        "not_learned": marks.not_learned.get(row.label, ""),
        "strong": [metric for metric, labels in marks.strong.items() if row.label in labels],
        "commands": commands,
        "no_command": why,
    }


def _tasks(members: Sequence[Result]) -> list[str]:
    """No names where they are other ones for every seed."""
    first, *others = [task_names(one) for one in members]
    return first if all(names == first for names in others) else [""] * len(first)


def _look(method: str) -> dict[str, str]:
    look = look_of(method)
    return {"colour": look.colour, "symbol": look.symbol, "dash": look.dash}


def _measured(analyses: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The methods that analyses are of: keys of a mapping, or entries that name theirs."""
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
        "accuracy": _shorter(result.accuracy),
        "oracle": result.oracle,
        "diverged": result.diverged,
        "steps": _number(result.steps or math.nan),
        "parameters": _number(result.parameters or math.nan),
        "versions": {str(k): str(v) for k, v in result.versions.items()},
        "machine": flat_fields(result.machine) if result.machine else {},
    }


def _number(value: float) -> float | None:
    """None where there is no number."""
    return value if math.isfinite(value) else None


def _shorter(value: Any) -> Any:
    """As many digits as a picture needs."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return round(value, DIGITS) if abs(value) >= 10**-DIGITS else float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {str(key): _shorter(item) for key, item in value.items()}
    return [_shorter(item) for item in value] if isinstance(value, (list, tuple)) else value
