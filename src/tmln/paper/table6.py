"""Table 6: every method over the grid of its own setting, on Split CIFAR-10; Figure 3 is drawn from the same runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tmln.experiments.config import RunConfig
from tmln.methods.recipes import RECIPES
from tmln.paper.evidence import Study
from tmln.paper.item import Item
from tmln.paper.lines import Line, configs_of, metric_sheets
from tmln.paper.notes import notes_at
from tmln.paper.page import Page
from tmln.paper.published import TABLE6, TABLE6_JOINT
from tmln.paper.scales import Scale, Stand
from tmln.paper.table1 import METHODS

TITLE = "Table 6: every method over its grid"
BENCHMARK = "split-cifar10"
SAID = (
    "eta",
    "ewc++",
    "rwalk",
    "ocar grid",
    "ocar deviation",
    "tmln grid",
    "er",
    "two deviations",
    "int",
    "int reference",
)


@dataclass(frozen=True)
class Swept:
    """What varies, the paper's symbol for it, values that its table lacks, and what all runs of the grid share."""

    setting: str
    symbol: str
    more: tuple[float, ...] = ()
    shared: Mapping[str, Any] = field(default_factory=dict)


SWEPT = {
    "naive": Swept("lr", "eta"),
    "er": Swept("replay.capacity", "M"),
    "ewc++": Swept("penalty.strength", "lambda"),
    "rwalk": Swept("penalty.strength", "lambda", shared={"penalty.proximal": True}),
    "upgd": Swept("step.beta_utility", "beta"),
    "ocar": Swept("step.damping", "tau", more=(0.1,)),
    "tmln": Swept("step.trajectory", "gamma"),
}


def lines(stand: Stand) -> list[Line]:
    """A row for each value of each method's own setting; those that the paper lacks are marked."""
    oracles = (method for method in METHODS if RECIPES[method].joint)
    rows = [Line((METHODS[method], "-"), method, paper={"acc": TABLE6_JOINT}) for method in oracles]
    for method, swept in SWEPT.items():
        if method == "rwalk":  # as it runs in Table 1, with explicit steps
            strength = stand.config(method).resolved()["settings"][swept.setting]
            cells = (f"+ {METHODS[method]}", f"{swept.symbol} = {strength:g}, explicit")
            rows.append(Line(cells, method, ours=True, swept=True))
        for value in sorted({*TABLE6[method], *swept.more}):
            whole = int(value) if value.is_integer() else value
            paper = TABLE6[method].get(value, {})
            changes = {**swept.shared, swept.setting: whole}
            cells = (METHODS[method], f"{swept.symbol} = {value:g}")
            rows.append(Line(cells, method, changes, paper, ours=not paper, swept=True))
    return rows


def runs(scale: Scale) -> list[RunConfig]:
    """The grids, and the references of INT."""
    stand = scale.stand(BENCHMARK)
    return configs_of(stand, lines(stand), scale.grid_seeds)


def render(study: Study) -> Page:
    """ACC, FM and INT over the grids, beside the printed ones."""
    stand = study.stand(BENCHMARK)
    sheets, records, notes = metric_sheets(study, stand, ["method", "setting"], lines(stand), study.scale.grid_seeds)
    return Page("table6", TITLE, sheets, records, [*notes, *notes_at((*SAID, "deviation"), study.scale)])


ITEM = Item("table6", TITLE, runs, render)
