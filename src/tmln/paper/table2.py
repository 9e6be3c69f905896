"""Table 2: TMLN without its parts, on Split CIFAR-10."""

from __future__ import annotations

from tmln.experiments.config import RunConfig
from tmln.paper.evidence import Study
from tmln.paper.item import Item
from tmln.paper.lines import Line, configs_of, equal_rate, metric_sheets
from tmln.paper.notes import notes_at
from tmln.paper.page import Page
from tmln.paper.published import TABLE2
from tmln.paper.scales import Scale, Stand

TITLE = "Table 2: ablation"
BENCHMARK = "split-cifar10"
SAID = ("eta", "control", "rate", "euclidean", "two deviations", "int", "deviation")


def lines(stand: Stand) -> list[Line]:
    """The paper's four rows, and between them what TMLN is without both parts, with and without replay."""
    rate = equal_rate(stand)
    return [
        Line(("Standard SGD", "-", "-"), "naive", paper=TABLE2["naive"]),
        Line(("+ SGD at eta/lambda", "-", "-"), "naive", rate, ours=True),
        Line(("+ ER at eta/lambda", "-", "-"), "er", rate, ours=True),
        Line(("TMLN-Static", "yes", "-"), "tmln-static", paper=TABLE2["tmln-static"]),
        Line(("TMLN-Euclidean", "-", "yes"), "tmln-euclidean", paper=TABLE2["tmln-euclidean"]),
        Line(("TMLN (full)", "yes", "yes"), "tmln", paper=TABLE2["tmln"]),
    ]


def runs(scale: Scale) -> list[RunConfig]:
    """TMLN with and without F and S, and the references of INT."""
    stand = scale.stand(BENCHMARK)
    return configs_of(stand, lines(stand), scale.seeds)


def render(study: Study) -> Page:
    """ACC, FM and INT of what is left of TMLN without F, S, or both."""
    stand = study.stand(BENCHMARK)
    sheets, records, notes = metric_sheets(study, stand, ["method", "F", "S"], lines(stand), study.scale.seeds)
    return Page("table2", TITLE, sheets, records, [*notes, *notes_at(SAID, study.scale)])


ITEM = Item("table2", TITLE, runs, render)
