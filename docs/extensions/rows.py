"""A method's row in our results: from files of ``tmln publish``, and only while the method is what it was then."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tmln.families import FAMILIES
from tmln.lab.config import RunConfig
from tmln.lab.result import Result
from tmln.metrics import metric_of
from tmln.recipes import RECIPES
from tmln.results.read import read_results
from tmln.results.rows import Row, comparable, rows_of
from tmln.results.sentence import sentence
from tmln.results.tables import cell, row_lines
from tmln.results.textgrid import grid_markdown

RESULTS = Path(__file__).parents[2] / "results"
COLUMNS = ("acc", "fm", "peak", "int", "seconds")
METHOD = ("settings", *FAMILIES)  # the fields of a configuration that a method is


@cache
def today(benchmark: str, method: str) -> dict[str, Any]:
    """The method as it is now, at its own settings."""
    return RunConfig.of({"benchmark": benchmark, "method": method}).resolved()


def still_so(result: Result) -> bool:
    """Whether a run is of a method as it is today: what has changed since is shown nowhere."""
    if result.method not in RECIPES:
        return False
    now = today(result.benchmark, result.method)
    return all(result.config.get(field) == now.get(field) for field in METHOD)


@cache
def rows() -> Sequence[Row]:
    """Of every published file."""
    found = [result for file in files() for result in read_results(file)[0]]
    return rows_of([result for result in found if still_so(result)])


def table(method: str, among: Sequence[Row] | None = None) -> str:
    """In Markdown, a line for each benchmark; empty where there is none."""
    mine = [row for row in (rows() if among is None else among) if row.method == method]
    metrics = [metric_of(name) for name in COLUMNS]
    lines = [["benchmark", "seeds", *(one.title for one in metrics)]]
    for row in mine:
        cells = [cell(row.summary(name), one) for name, one in zip(COLUMNS, metrics, strict=True)]
        lines.append([f"{row.where} {row.settings}".strip(), str(row.summary("acc").n), *cells])
    return grid_markdown(lines) if mine else ""


def page() -> str:
    """Every table, with the sentence that it allows, and the command that checks the file."""
    lines = ["# Every method in our tables", ""]
    lines += [
        "At their own settings; tuned, on real images, they are in [the results](../results.md). Anybody can check:",
        "",
    ]
    lines += ["```console", *(f"$ tmln verify results/{file.name} --sample 3" for file in files()), "```", ""]
    for title, mine in comparable(rows()).items():
        lines += [f"## {title}", "", grid_markdown(row_lines(mine)), "", sentence(mine), ""]
    return "\n".join(lines)


def files() -> list[Path]:
    """What methods reach at their own settings; what they reach when tuned is on a page of its own."""
    return [RESULTS / "digits.json"]
