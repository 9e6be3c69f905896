"""The main recipes once more with a larger network on whole pictures, at the settings that tuning chose without it."""

from __future__ import annotations

from dataclasses import replace

from tmln.experiments.config import RunConfig
from tmln.paper.evidence import Study
from tmln.paper.item import Item
from tmln.paper.lines import Line
from tmln.paper.page import Page
from tmln.paper.recipes import add_race, past
from tmln.paper.scales import Scale, Stand

TITLE = "Confirmation: the main recipes with a larger network"
METHODS = (
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
COLUMNS = ("n", "acc", "fm", "peak", "learning_accuracy", "delta", "delta_interval", "holm", "seconds", "memory")


def stands(scale: Scale) -> list[Stand]:
    """The scale's benchmarks as they are confirmed; none where it has no larger network."""
    larger = scale.larger
    return [replace(stand, settings={**stand.settings, **larger}) for stand in past(scale) if larger]


def runs(scale: Scale) -> list[RunConfig]:
    """INT is not asked for: its references would take longer than all else."""
    asked = [(stand, method, seed) for stand in stands(scale) for method in METHODS for seed in range(scale.grid_seeds)]
    return [stand.config(method, seed) for stand, method, seed in asked]


def render(study: Study) -> Page:
    """A sheet a benchmark, as that of the recipes."""
    page = Page("confirm", TITLE)
    for stand in stands(study.scale):
        add_race(page, study, stand, [Line((method,), method) for method in METHODS], study.scale.grid_seeds, COLUMNS)
    if not page.sheets:
        page.notes.append(f"nothing is confirmed at scale {study.scale.name}: it has no larger network")
    else:
        page.notes.append("every method has the settings that it has with the smaller network: nothing was tuned anew")
    return page


ITEM = Item("confirm", TITLE, runs, render)
