"""Past the paper: our recipes beside those they are compared with, at equal memory and steps, equally tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tmln.analysis.statistics import summarise
from tmln.analysis.summary_text import write_summary
from tmln.experiments.config import RunConfig
from tmln.paper.evidence import Study, find
from tmln.paper.item import Item
from tmln.paper.lines import Line, configs_of, equal_rate, race_of, race_sheet, sheet_notes
from tmln.paper.page import Page
from tmln.paper.scales import Scale, Stand

TITLE = "Recipes: past the paper, at equal memory and steps"
METHODS = (
    "naive", "er", "er-ace", "der++", "icarl", "wa", "cls-er", "ocar", "tmln", "tmln-kfac",
    "er+", "der+", "ocar+", "ocar+der", "tmln+", "tmln+der", "tmln-kfac+", "tmln-kfac+der",
)  # fmt: skip
COLUMNS = ("n", "acc", "fm", "peak", "int", "learning_accuracy", "delta", "delta_interval", "holm", "seconds", "memory")


def lines(stand: Stand) -> list[Line]:
    """The oracle, then every method, those at TMLN's rate among them."""
    rate = equal_rate(stand)
    same = [Line((f"{method} at eta/lambda",), method, rate, ours=True) for method in ("naive", "er")]
    return [Line(("joint",), "joint"), *same, *(Line((method,), method) for method in METHODS)]


def runs(scale: Scale) -> list[RunConfig]:
    """Every recipe on every benchmark, and the references of INT."""
    return [config for stand in past(scale) for config in configs_of(stand, lines(stand), scale.seeds)]


def past(scale: Scale) -> list[Stand]:
    """The benchmarks that recipes past the paper are run on."""
    return [stand for stand in scale.stands.values() if stand.past]


def render(study: Study) -> Page:
    """A sheet a benchmark: metrics, and how far each recipe is from the best, corrected for all pairs."""
    page = Page("recipes", TITLE)
    for stand in past(study.scale):
        add_race(page, study, stand, lines(stand), study.scale.seeds, COLUMNS)
    return page


def add_race(
    page: Page, study: Study, stand: Stand, wanted: Sequence[Line], seeds: int, columns: Sequence[str]
) -> None:
    """A sheet of one benchmark, with its numbers and notes."""
    found = [find(study, stand, line.method, line.changes, seeds) for line in wanted]
    race = race_of(wanted, found)
    page.sheets.append(race_sheet(stand.title, wanted, found, columns))
    page.records.extend(
        _record(stand, line, metric, (each.row.summary(metric) if each.row else summarise([])).parts(scale=100))
        for line, each in zip(wanted, found, strict=True)
        for metric in ("acc", "fm", "int", "learning_accuracy")
        if metric in columns
    )
    page.notes.extend([*([write_summary(race)] if race else []), *sheet_notes(stand, wanted, found)])


def _record(stand: Stand, line: Line, metric: str, parts: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"benchmark": stand.benchmark, "method": line.method, "row": line.label, "metric": metric, **parts}


ITEM = Item("recipes", TITLE, runs, render)
