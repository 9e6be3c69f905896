"""Find the rows of a method in the published results, at its own settings and as tuned."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.results_page import DETAILS, PLACE

from tmln.analysis.read import read_results
from tmln.analysis.rows import Row, group_by_table, group_rows
from tmln.analysis.summary_text import write_summary
from tmln.analysis.tables import cell, row_lines
from tmln.analysis.text_table import Lines, grid_markdown
from tmln.experiments.config import RunConfig
from tmln.experiments.result import Result
from tmln.methods.recipes import RECIPES
from tmln.methods.registry import FAMILIES
from tmln.metrics import metric_of
from tmln.paper.tables import METHODS as PAPERS_NAMES

RESULTS = Path(__file__).parents[2] / "results"
COLUMNS = ("acc", "fm", "peak", "int", "seconds")
TUNED = ("acc", "fm", "int")  # what the tables of docs/results/ have in common
METHOD = ("settings", *FAMILIES)  # the fields of a configuration that a method is
BOLD = (
    "Mean ± sample deviation over n seeds. **Bold**: the best of a column, and every row whose difference from it is "
    "not significant (paired test, Holm's correction for all pairs). Bold does not mean good: with so few seeds a low "
    "mean is bold if it varies much from seed to seed, and a higher one is not if it is lower in every seed. `joint` "
    "and `independent` see other data and do not compete."
)


@cache
def today(benchmark: str, method: str) -> dict[str, Any]:
    """Return the method's configuration now, at its own settings."""
    return RunConfig.of({"benchmark": benchmark, "method": method}).resolved()


def still_so(result: Result) -> bool:
    """Return whether a run is of a method as it is today; runs of changed methods are not shown."""
    if result.method not in RECIPES:
        return False
    now = today(result.benchmark, result.method)
    return all(result.config.get(field) == now.get(field) for field in METHOD)


@cache
def rows() -> Sequence[Row]:
    """Return the rows of every published file."""
    found = [result for file in files() for result in read_results(file)[0]]
    return group_rows([result for result in found if still_so(result)])


def table(method: str, among: Sequence[Row] | None = None) -> str:
    """Return Markdown with a line for each benchmark; empty where there is none."""
    mine = [row for row in (rows() if among is None else among) if row.method == method]
    metrics = [metric_of(name) for name in COLUMNS]
    lines = [["benchmark", "seeds", *(one.title for one in metrics)]]
    for row in mine:
        cells = [cell(row.summary(name), one) for name, one in zip(COLUMNS, metrics, strict=True)]
        lines.append([f"{row.title} {row.settings}".strip(), str(row.summary("acc").n), *cells])
    return grid_markdown(lines) if mine else ""


@cache
def tuned() -> dict[tuple[str, str], dict[str, str]]:
    """Return what docs/results/ has, by method and the title of a table.

    The pages are read, not their runs again: a test holds their tables to the published file.
    """
    names = {title: method for method, title in PAPERS_NAMES.items()}
    found: dict[tuple[str, str], dict[str, str]] = {}
    for place in (place for path in DETAILS for place in PLACE.finditer(path.read_text(encoding="utf-8"))):
        if place["item"] not in ("recipes", "table1") or place["title"] == "notes":
            continue
        lines = [line for line in place[0].replace("**", "").splitlines() if line.startswith("|")]
        head, _, *table = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
        if not {metric_of(name).title for name in TUNED} <= set(head):
            continue  # how far each is from the best
        for row in table:
            which = names.get(row[0], row[0]), place["title"].split(" for ")[0]
            found.setdefault(which, dict(zip(head, row, strict=True)))
    return found


def tuned_table(method: str) -> str:
    """Return Markdown with a line for each benchmark on which the method was tuned, or nothing."""
    lines = [["benchmark", "seeds", *(metric_of(name).title for name in TUNED)]]
    for (name, where), cells in tuned().items():
        if name == method:
            lines.append([where, cells["n"], *(cells[metric_of(metric).title] for metric in TUNED)])
    return grid_markdown(lines) if len(lines) > 1 else ""


def accuracies(methods: Sequence[str]) -> Lines:
    """Return ACC of these methods, a line each: at their own settings, then tuned."""
    own = {row.method: cell(row.summary("acc"), metric_of("acc")) for row in rows() if row.title == "split-digits"}
    wheres = list(dict.fromkeys(where for _, where in tuned()))
    head = ["method", "split-digits", *(f"{where}, tuned" for where in wheres)]
    found = {which: cells[metric_of("acc").title] for which, cells in tuned().items()}
    return [head, *([name, own.get(name, "-"), *(found.get((name, at), "-") for at in wheres)] for name in methods)]


def page() -> str:
    """Return every table, its conclusion, and the command that checks the file."""
    lines = ["# Every method in our tables", ""]
    lines += [
        "At their own settings; tuned, on real images, they are in [the results](../results.md). Anybody can check:",
        "",
    ]
    lines += ["```console", *(f"$ tmln verify results/{file.name} --sample 3" for file in files()), "```", ""]
    for title, mine in group_by_table(rows()).items():
        lines += [f"## {title}", "", grid_markdown(row_lines(mine)), "", BOLD, "", write_summary(mine), ""]
    return "\n".join(lines)


def files() -> list[Path]:
    """What methods reach at their own settings; what they reach when tuned is on a page of its own."""
    return [RESULTS / "digits.json"]
