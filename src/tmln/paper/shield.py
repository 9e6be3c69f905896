"""When the division by F + lambda + gamma*S helps: TMLN against plain steps at equal rate.

Numbers of tasks, memory sizes, lambda and gamma are varied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tmln.analysis.significance import holm
from tmln.analysis.statistics import Comparison, compare
from tmln.analysis.text_table import Strong
from tmln.experiments.config import RunConfig
from tmln.paper.scales import BenchmarkSetup, Scale
from tmln.paper.study import NOT_RUN, Item, Page, RequestedRow, Sheet, Study, find_row
from tmln.paper.tables import match_rate

TITLE = "Shield: what dividing by F + lambda + gamma*S changes, at one rate"
TASKS = (5, 10, 20, 50)
FEWER = (2, 5)  # of the substitute at a small scale
MEMORIES = (50, 150, 500)
SHIELDS = ((0.1, 1.0), (0.01, 1.0), (0.001, 1.0), (0.01, 0.1), (0.01, 10.0))  # lambda and gamma
SEEDS = 3
DOMAINS = BenchmarkSetup("core50", "rotated-digits")  # at all scales: it takes seconds
LEVEL = 0.05


@dataclass(frozen=True)
class Case:
    """A stream and a memory; without a memory nothing is replayed."""

    setup: BenchmarkSetup
    tasks: int | None
    memory: int | None

    @property
    def label(self) -> str:
        """Return ``split-cifar100, 20 tasks, memory 150``."""
        kept = "no memory" if self.memory is None else f"memory {self.memory}"
        tasks = "" if self.tasks is None else f", {self.tasks} tasks"
        return f"{self.setup.benchmark}{tasks}, {kept}"

    def changes(self, shield: tuple[float, float] | None) -> tuple[str, Mapping[str, Any]]:
        """Return method and settings of TMLN, or of plain steps at the same rate in task 1."""
        rate = match_rate(self.setup)["lr"]
        shared: dict[str, Any] = {} if self.tasks is None else {"benchmark.tasks": self.tasks}
        shared |= {"replay": "none"} if self.memory is None else {"replay.capacity": self.memory}
        if shield is None:
            method = "naive" if self.memory is None else "er"
            return method, {**shared, "lr": rate, "step.momentum": 0.0}
        damping, trajectory = shield
        lr = float(f"{rate * damping:.6g}")
        return "tmln", {**shared, "lr": lr, "step.damping": damping, "step.trajectory": trajectory}


def list_cases(scale: Scale) -> list[Case]:
    """Return class-incremental cases of several sizes, and rotated digits without memory."""
    setup = scale.setup("split-cifar100")
    tasks = TASKS if setup.benchmark == setup.paper else FEWER
    return [*(Case(setup, count, memory) for count in tasks for memory in MEMORIES), Case(DOMAINS, None, None)]


def list_configs(case: Case) -> Iterator[RunConfig]:
    """Yield plain steps and every pair of lambda and gamma, with every seed."""
    for shield in (None, *SHIELDS):
        method, changes = case.changes(shield)
        bare = replace(case.setup, memory=None)
        yield from (bare.plain(method, seed, changes) for seed in range(SEEDS))


def runs(scale: Scale) -> list[RunConfig]:
    """Return the runs of all cases; INT is left out, so that no reference is run."""
    return [config for case in list_cases(scale) for config in list_configs(case)]


def render(study: Study) -> Page:
    """Return a row per case: plain steps, and differences of TMLN with Holm's correction."""
    page = Page("shield", TITLE)
    found: list[tuple[Case, RequestedRow, list[Comparison | None]]] = []
    for case in list_cases(study.scale):
        plain, *shielded = (_find(study, case, shield) for shield in (None, *SHIELDS))
        found.append((case, plain, [_against(each, plain) for each in shielded]))
    tested = [pair for *_, pairs in found for pair in pairs if pair is not None]
    corrected = {id(pair): p for pair, p in zip(tested, holm([pair.p_value for pair in tested]), strict=True)}
    heading = ["stream", "n", "plain steps", *(f"lambda {damping:g}, gamma {gamma:g}" for damping, gamma in SHIELDS)]
    lines = [heading]
    for case, plain, pairs in found:
        lines.append([case.label, str(plain.n), plain.text("acc"), *(_cell(pair, corrected) for pair in pairs)])
        page.records.extend(
            {
                "case": case.label,
                "damping": shield[0],
                "trajectory": shield[1],
                "plain": plain.summary("acc").mean,
                "difference": None if pair is None else pair.mean_difference,
                "low": None if pair is None else pair.low,
                "high": None if pair is None else pair.high,
                "corrected_p": None if pair is None else corrected[id(pair)],
            }
            for shield, pair in zip(SHIELDS, pairs, strict=True)
        )
    page.sheets.append(Sheet("ACC in percent, and points above plain steps with their 95% interval", lines))
    page.notes.append(
        "plain steps are SGD without momentum at eta/lambda, TMLN's rate in task 1 and the same replay. Bold: differs "
        f"significantly from 0 after Holm's correction over all {len(tested)} comparisons"
    )
    page.notes.extend(_list_missing(found))
    return page


def _find(study: Study, case: Case, shield: tuple[float, float] | None) -> RequestedRow:
    method, changes = case.changes(shield)
    return find_row(study, replace(case.setup, memory=None, chosen={}), method, changes, SEEDS)


def _against(each: RequestedRow, plain: RequestedRow) -> Comparison | None:
    if each.row is None or plain.row is None:
        return None
    found = compare(each.row.values.get("acc", {}), plain.row.values.get("acc", {}))
    return found if found.n else None


def _cell(pair: Comparison | None, corrected: Mapping[int, float]) -> str:
    if pair is None:
        return NOT_RUN
    text = f"{100 * pair.mean_difference:+.1f}"
    if pair.n > 1:
        text += f" [{100 * pair.low:+.1f}, {100 * pair.high:+.1f}]"
    return Strong(text) if corrected[id(pair)] < LEVEL else text


def _list_missing(found: list[tuple[Case, RequestedRow, list[Comparison | None]]]) -> list[str]:
    setups = {case.setup.benchmark: case.setup for case, *_ in found}
    missing = [setup.missing for setup in setups.values() if setup.missing]
    return [f"{name} is not at hand: tmln data get {name}" for name in missing]


ITEM = Item("shield", TITLE, runs, render)
