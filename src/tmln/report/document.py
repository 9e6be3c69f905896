"""A folder of runs as one plain document: what the page embeds, and nothing of the machine it was made on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tmln
from tmln.draw.palette import look_of
from tmln.lab.command import commands_of
from tmln.lab.config import RunConfig
from tmln.lab.oracle import Oracle
from tmln.report.tasks import task_names
from tmln.report.warn import warnings_of
from tmln.results.measurements import load_analyses
from tmln.results.read import gather
from tmln.results.rows import Row, flat_fields, label_methods, metric_of, rows_of
from tmln.results.sentence import sentence
from tmln.results.validity import readable

DIGITS = 5  # of accuracies in matrices and of what pictures are drawn from; metrics keep all


def document(runs: Path, oracle: Oracle | None = None) -> dict[str, Any]:
    """Plain values only; whatever cannot be read is named in it, with the reason."""
    everything, troubles = gather(runs, oracle)
    problems = [asdict(trouble) for trouble in troubles]
    shortcuts = [name for name, result in everything.items() if result["config"].get("merged")]
    found = [(name, result) for name, result in everything.items() if name not in shortcuts]
    results = [result for _, result in found]
    rows = rows_of(results)
    numbers = {(row.benchmark, row.label): number for number, row in enumerate(rows)}
    placed = [numbers[r["benchmark"], label] for r, label in zip(results, label_methods(results), strict=True)]
    members = [[r for r, at in zip(results, placed, strict=True) if at == number] for number in range(len(rows))]
    analyses = [{"kind": a.kind, "name": a.name, "content": _shorter(a.content)} for a in load_analyses(runs)]
    complete = {
        "format": 1,
        "title": runs.resolve().name,
        "tmln": tmln.__version__,
        "metrics": {name: _metric(name) for name in sorted({metric for row in rows for metric in row.values})},
        "sentences": _sentences(rows),
        "rows": [_row(row, mine) for row, mine in zip(rows, members, strict=True)],
        "runs": [_run(name, result, at) for (name, result), at in zip(found, placed, strict=True)],
        "shortcuts": shortcuts,
        "problems": problems,
        "warnings": warnings_of(rows, problems, results),
        "analyses": analyses,
        "looks": {name: _look(name) for name in sorted({*_measured(analyses)})},
    }
    return dict(readable(complete))


def _metric(name: str) -> dict[str, Any]:
    metric = metric_of(name)
    return {
        "heading": metric.heading,
        "about": metric.about,
        "more_is_better": metric.more_is_better,
        "percent": metric.percent,
        "within": [end if math.isfinite(end) else None for end in metric.within],
    }


def _sentences(rows: Sequence[Row]) -> dict[str, str]:
    names = dict.fromkeys(row.benchmark for row in rows)
    return {name: sentence([row for row in rows if row.benchmark == name]) for name in names}


def _row(row: Row, members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = members[0]
    fields = flat_fields({key: value for key, value in first["config"].items() if key != "seed"})
    commands, why = _commands(first["config"], [int(r["seed"]) for r in members])
    return {
        "benchmark": row.benchmark,
        "label": row.label,
        "method": str(first["method"]),
        "look": _look(str(first["method"])),
        "fields": {key.removeprefix("settings."): value for key, value in fields.items()},
        "tasks": _tasks(members),
        "missing": list(row.missing),
        "competes": row.competes,
        "commands": commands,
        "no_command": why,
    }


def _tasks(members: Sequence[Mapping[str, Any]]) -> list[str]:
    """No names where they are other ones for every seed."""
    first, *others = [task_names(one) for one in members]
    return first if all(names == first for names in others) else [""] * len(first)


def _look(method: str) -> dict[str, str]:
    look = look_of(readable(method))
    return {"colour": look.colour, "symbol": look.symbol, "dash": look.dash}


def _measured(analyses: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The methods that analyses are of: keys of a mapping, or entries that name theirs."""
    for analysis in analyses:
        found = analysis["content"].get("methods")
        for one in found if isinstance(found, (list, Mapping)) else ():
            yield str(one.get("method")) if isinstance(one, Mapping) else str(one)


def _commands(config: Mapping[str, Any], seeds: Iterable[int]) -> tuple[list[str], str]:
    try:
        return commands_of(RunConfig.of(config), seeds), ""
    except (TypeError, ValueError) as error:
        return [], f"this version of tmln does not know the configuration: {error}"


def _run(name: str, result: Mapping[str, Any], row: int) -> dict[str, Any]:
    found = {**result["metrics"], "seconds": result.get("seconds"), "rate": result.get("effective_rate")}
    versions = result.get("versions")
    return {
        "name": name,
        "row": row,
        "seed": int(result["seed"]),
        "metrics": {key: _number(value) for key, value in found.items()},
        "accuracy": _shorter(result["accuracy"]),
        "oracle": str(result.get("oracle", "none")),
        "diverged": str(result["diverged"]) if result.get("diverged") else "",
        "steps": _number(result.get("steps")),
        "parameters": _number(result.get("parameters")),
        "versions": {str(k): str(v) for k, v in versions.items()} if isinstance(versions, Mapping) else {},
        "machine": flat_fields(result["machine"]) if isinstance(result.get("machine"), Mapping) else {},
    }


def _number(value: Any) -> float | int | None:
    """None where there is no number."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None


def _shorter(value: Any) -> Any:
    """As many digits as a picture needs."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return round(value, DIGITS) if abs(value) >= 10**-DIGITS else float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {str(key): _shorter(item) for key, item in value.items()}
    return [_shorter(item) for item in value] if isinstance(value, (list, tuple)) else value
