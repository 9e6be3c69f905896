"""Recipes beyond the paper, and their confirmation with a larger network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tmln.analysis.statistics import summarise
from tmln.analysis.summary_text import write_summary
from tmln.experiments.config import RunConfig
from tmln.paper.scales import VARIANTS, BenchmarkSetup, Scale
from tmln.paper.study import Item, Page, Study, find_row
from tmln.paper.tables import TableRow, list_competitors, list_configs, make_comparison_sheet, match_rate, write_notes

RECIPES_TITLE = "Recipes: past the paper, at equal memory and steps"
METHODS = (
    "naive", "er", "er-ace", "der++", "icarl", "wa", "cls-er", "ocar", "tmln", "tmln-kfac",
    "er+", "der+", "ocar+", "ocar+der", "tmln+", "tmln+der", "tmln-kfac+", "tmln-kfac+der", *VARIANTS,
)  # fmt: skip
COLUMNS = ("n", "acc", "fm", "peak", "int", "learning_accuracy", "delta", "delta_interval", "holm", "seconds", "memory")


def list_rows(setup: BenchmarkSetup) -> list[TableRow]:
    """Return the joint reference, then every method, those at TMLN's rate among them."""
    rate = match_rate(setup)
    same = [TableRow((f"{method} at eta/lambda",), method, rate, ours=True) for method in ("naive", "er")]
    return [TableRow(("joint",), "joint"), *same, *(TableRow((method,), method) for method in METHODS)]


def list_recipes_runs(scale: Scale) -> list[RunConfig]:
    """Return every recipe on every benchmark, and the references of INT."""
    return [
        config for setup in list_recipe_setups(scale) for config in list_configs(setup, list_rows(setup), scale.seeds)
    ]


def list_recipe_setups(scale: Scale) -> list[BenchmarkSetup]:
    """Return the benchmarks on which recipes beyond the paper are run."""
    return [setup for setup in scale.setups.values() if setup.has_recipes]


def render_recipes(study: Study) -> Page:
    """Return a sheet per benchmark: metrics, and differences from the best after correction."""
    page = Page("recipes", RECIPES_TITLE)
    for setup in list_recipe_setups(study.scale):
        add_comparison(page, study, setup, list_rows(setup), study.scale.seeds, COLUMNS)
    return page


def add_comparison(
    page: Page, study: Study, setup: BenchmarkSetup, wanted: Sequence[TableRow], seeds: int, columns: Sequence[str]
) -> None:
    """Add a sheet of one benchmark with its records and notes."""
    found = [find_row(study, setup, line.method, line.changes, seeds) for line in wanted]
    competitors = list_competitors(wanted, found)
    page.sheets.append(make_comparison_sheet(setup.title, wanted, found, columns))
    page.records.extend(
        _record(setup, line, metric, (each.row.summary(metric) if each.row else summarise([])).parts(scale=100))
        for line, each in zip(wanted, found, strict=True)
        for metric in ("acc", "fm", "int", "learning_accuracy")
        if metric in columns
    )
    page.notes.extend([*([write_summary(competitors)] if competitors else []), *write_notes(setup, wanted, found)])


def _record(setup: BenchmarkSetup, line: TableRow, metric: str, parts: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"benchmark": setup.benchmark, "method": line.method, "row": line.label, "metric": metric, **parts}


RECIPES_ITEM = Item("recipes", RECIPES_TITLE, list_recipes_runs, render_recipes)


CONFIRM_TITLE = "Confirmation: the main recipes with a larger network"
CONFIRM_METHODS = (
    "naive",
    "er",
    "er-ace",
    "der++",
    "ocar",
    "tmln",
    "er+",
    "ocar+",
    "tmln+",
    "tmln-kfac+",
    "ocar+der",
    "tmln-kfac+der",
)
CONFIRM_COLUMNS = (
    "n",
    "acc",
    "fm",
    "peak",
    "learning_accuracy",
    "delta",
    "delta_interval",
    "holm",
    "seconds",
    "memory",
)


def list_confirm_setups(scale: Scale) -> list[BenchmarkSetup]:
    """Return the scale's benchmarks with the larger network; none if the scale has none."""
    larger = scale.larger
    return [replace(setup, settings={**setup.settings, **larger}) for setup in list_recipe_setups(scale) if larger]


def list_confirm_runs(scale: Scale) -> list[RunConfig]:
    """Return the runs; INT is left out, because its references take longer than all else."""
    requested = [
        (setup, method, seed)
        for setup in list_confirm_setups(scale)
        for method in CONFIRM_METHODS
        for seed in range(scale.grid_seeds)
    ]
    return [setup.config(method, seed) for setup, method, seed in requested]


def render_confirm(study: Study) -> Page:
    """Return a sheet per benchmark, like that of the recipes."""
    page = Page("confirm", CONFIRM_TITLE)
    for setup in list_confirm_setups(study.scale):
        add_comparison(
            page,
            study,
            setup,
            [TableRow((method,), method) for method in CONFIRM_METHODS],
            study.scale.grid_seeds,
            CONFIRM_COLUMNS,
        )
    if not page.sheets:
        page.notes.append(f"nothing is confirmed at scale {study.scale.name}: it has no larger network")
    else:
        page.notes.append("every method has the settings that it has with the smaller network: nothing was tuned anew")
    return page


CONFIRM_ITEM = Item("confirm", CONFIRM_TITLE, list_confirm_runs, render_confirm)
