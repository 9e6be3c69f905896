"""Table 1: every method on Split CIFAR-100 and CORe50."""

from __future__ import annotations

from tmln.experiments.config import RunConfig
from tmln.paper.evidence import Study
from tmln.paper.item import Item
from tmln.paper.lines import Line, configs_of, equal_rate, metric_sheets
from tmln.paper.notes import notes_at
from tmln.paper.page import Page
from tmln.paper.published import TABLE1
from tmln.paper.scales import Scale, Stand

TITLE = "Table 1: accuracy, forgetting and intransigence"
METHODS = {
    "joint": "Joint (oracle)",
    "naive": "Naive SGD",
    "er": "ER",
    "ewc++": "EWC++",
    "rwalk": "RWalk",
    "upgd": "UPGD",
    "ocar": "OCAR",
    "tmln": "TMLN",
}
AT_TMLNS_RATE = {"naive": "+ SGD at eta/lambda", "er": "+ ER at eta/lambda"}
SAID = ("rate", "momentum", "ewc++", "joint", "int", "int reference")
SAID_CORE50 = ("core50 naive", "core50 tests", "core50 settings")


def lines(stand: Stand) -> list[Line]:
    """The paper's rows in its order, and after Naive and ER the same at TMLN's rate, which are ours."""
    printed, rate, rows = TABLE1[stand.paper], equal_rate(stand), []
    for method, title in METHODS.items():
        rows.append(Line((title,), method, paper=printed[method]))
        if method in AT_TMLNS_RATE:
            rows.append(Line((AT_TMLNS_RATE[method],), method, rate, ours=True))
    return rows


def runs(scale: Scale) -> list[RunConfig]:
    """Every method, seed and benchmark, and the references of INT."""
    stands = [scale.stand(benchmark) for benchmark in TABLE1]
    return [config for stand in stands for config in configs_of(stand, lines(stand), scale.seeds)]


def render(study: Study) -> Page:
    """ACC, FM and INT beside the printed ones, and who is told from the best, of each benchmark."""
    page = Page("table1", TITLE)
    for benchmark in TABLE1:
        stand = study.stand(benchmark)
        sheets, records, notes = metric_sheets(study, stand, ["method"], lines(stand), study.scale.seeds)
        page.sheets.extend(sheets)
        page.records.extend(records)
        page.notes.extend(notes)
    page.notes.extend(notes_at((*SAID, *SAID_CORE50, "deviation"), study.scale))
    return page


ITEM = Item("table1", TITLE, runs, render)
