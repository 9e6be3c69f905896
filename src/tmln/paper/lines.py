"""Rows of methods beside the paper's: what Tables 1, 2 and 6 have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tmln.analysis.differences import column_lines
from tmln.analysis.notes import version_notes
from tmln.analysis.requested_rows import RequestedRow
from tmln.analysis.rows import Row
from tmln.analysis.significance import assess_significance
from tmln.analysis.summary_text import write_summary
from tmln.analysis.text_table import Strong
from tmln.experiments import matched_lr
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.reference_runs import reference_config
from tmln.methods.recipes import find_recipe
from tmln.metrics import metric_of
from tmln.paper.evidence import Study, find
from tmln.paper.page import Sheet
from tmln.paper.published import METRICS, Cells
from tmln.paper.scales import Stand

# what the paper's tables do not have
BESIDES = ("n", "interval", "learning_accuracy", "delta", "delta_interval", "holm", "seconds", "memory")


@dataclass(frozen=True)
class Line:
    """One row: its first cells, the runs behind it, and what the paper prints; ``ours`` marks rows that it lacks."""

    cells: tuple[str, ...]
    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    paper: Cells = field(default_factory=dict)
    ours: bool = False
    swept: bool = False  # one of a grid of settings, of which none was chosen without the test data

    @property
    def joint(self) -> bool:
        """Its runs see all data at once: they are the reference, and compete with nobody."""
        return find_recipe(self.method).joint

    @property
    def label(self) -> str:
        """``EWC++, lambda = 10``: what a note calls the row."""
        return ", ".join(cell for cell in self.cells[:2] if cell not in ("yes", "-", ""))


def equal_rate(stand: Stand) -> dict[str, Any]:
    """Plain SGD at the rate that TMLN has in task 1, as its recipe runs there."""
    return matched_lr.equal_rate(stand.config("tmln"))


def configs_of(stand: Stand, lines: Sequence[Line], seeds: int) -> list[RunConfig]:
    """The runs that these rows need, the joint references among them."""
    asked = [stand.config(line.method, seed, line.changes) for line in lines for seed in range(seeds)]
    references = [reference_config(config, "prefix") for config in asked]
    return list({run_id(config): config for config in (*references, *asked) if config is not None}.values())


def metric_sheets(
    study: Study, stand: Stand, heads: Sequence[str], lines: Sequence[Line], seeds: int
) -> tuple[list[Sheet], list[Mapping[str, Any]], list[str]]:
    """The table, its numbers, and the notes that it needs; where rows compete, a second one of what that came to."""
    found = [find(study, stand, line.method, line.changes, seeds) for line in lines]
    heading = [*heads, "n"]
    for metric in METRICS:
        heading += [metric_of(metric).title, "paper"]
        heading += ["peak"] if metric == "fm" else []
    race = race_of(lines, found)
    best = {metric: assess_significance(race, metric).strong for metric in METRICS}
    body = []
    for line, each in zip(lines, found, strict=True):
        cells = [*line.cells, str(each.n)]
        for metric in METRICS:
            shown = "-" if line.joint and metric != "acc" else each.text(metric)
            strong = each.row is not None and entrant(line, each).label in best[metric]
            cells += [Strong(shown) if strong else shown, str(line.paper.get(metric, "-"))]
            if metric == "fm":
                cells.append("-" if line.joint else each.text("peak"))
        body.append(cells)
    records = [record for line, each in zip(lines, found, strict=True) for record in _records(stand, line, each)]
    sheets, said = [Sheet(stand.title, [heading, *body])], _said(race)
    if said:
        sheets.append(race_sheet(f"{stand.title}, against the best", lines, found, BESIDES))
    return sheets, records, [*said, *sheet_notes(stand, lines, found)]


def race_sheet(title: str, lines: Sequence[Line], found: Sequence[RequestedRow], columns: Sequence[str]) -> Sheet:
    """Metrics of every row, and how far it is from the best, corrected for all pairs."""
    race = race_of(lines, found)
    text = column_lines(race, assess_significance(race, "acc"), columns) if race else [["method", ""]]
    absent = [line for line, each in zip(lines, found, strict=True) if not each.row]
    return Sheet(title, text + [[line.label, *["not run"] * max(1, len(text[0]) - 1)] for line in absent])


def race_of(lines: Sequence[Line], found: Sequence[RequestedRow]) -> list[Row]:
    """The rows that have run, as they compete."""
    return [entrant(line, each) for line, each in zip(lines, found, strict=True) if each.row]


def entrant(line: Line, found: RequestedRow) -> Row:
    """As it competes: a line of the paper is a method of its own, one of a grid is one of its method's settings."""
    assert found.row is not None
    label = f"{line.method} {line.cells[1]}" if line.swept else line.label.removeprefix("+ ")
    return replace(found.row, label=label, alone=not line.swept)


def _said(race: Sequence[Row]) -> list[str]:
    """What the table says, in words; of grids, whose best would be chosen on the test data, nothing."""
    return [write_summary(race)] if any(row.alone and row.competes for row in race) else []


def sheet_notes(stand: Stand, lines: Sequence[Line], found: Sequence[RequestedRow]) -> list[str]:
    """What must be known of a table: how it was run, what is not there, and why."""
    said = [stand.remark]
    if stand.missing and not any(each.n for each in found):
        return [*said, f"{stand.title} was not run: {stand.missing} is not at hand; tmln data get {stand.missing}"]
    single = [line.label for line, each in zip(lines, found, strict=True) if each.n == 1]
    if len(single) == len(lines):
        said.append("one seed only: no deviation and no interval")
    for line, each in zip(lines, found, strict=True):
        notes = each.notes(f"{stand.benchmark}, {line.label}")
        said += [note for note in notes if len(single) < len(lines) or "one seed only" not in note]
    results = [result for each in found if each.row for result in each.row.results]
    return said + [f"{note}; a new --runs folder has them all of one" for note in version_notes(results)]


def _records(stand: Stand, line: Line, found: RequestedRow) -> list[Mapping[str, Any]]:
    """Percent, as the paper has it."""
    records: list[Mapping[str, Any]] = []
    for metric in METRICS:
        printed = line.paper.get(metric)
        records.append(
            {
                "paper_benchmark": stand.paper,
                "benchmark": stand.benchmark,
                "row": line.label,
                "method": line.method,
                "changes": " ".join(f"{key}={value}" for key, value in line.changes.items()),
                "metric": metric,
                **found.summary(metric).parts(scale=100),
                "diverged": 0 if found.row is None else len(found.row.diverged),
                "not_run": len(found.why),
                "paper_mean": None if printed is None else printed.mean,
                "paper_std": None if printed is None else printed.std,
            }
        )
    return records
