"""Equal tuning: as many trials for every method, over rate and main strength.

Trials are compared on validation data of one seed.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tmln.analysis.text_table import Strong
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.result import Result
from tmln.experiments.store import Store
from tmln.paper.scales import SCALES, BenchmarkSetup, Scale
from tmln.paper.study import Item, Page, Sheet, Study
from tmln.paper.tables import METHODS as PAPER

TITLE = "Tuning: every method over its rate and its main strength"
SEED = 100  # not used in any table
VALIDATION = 0.1  # of the training data; the tables' runs train on all
RATES = (0.03, 0.1, 0.3, 1.0)  # effective rates: eta / (lambda * (1 - momentum))

_MOMENTUM = ("step.momentum", (0.0, 0.9))
_DAMPING = ("step.damping", (0.01, 0.1))
_DISTILLED = ("replay.alpha", (0.1, 0.3))
MAIN: dict[str, tuple[str, tuple[float, ...]]] = {
    "joint": _MOMENTUM,
    "naive": _MOMENTUM,
    "er": _MOMENTUM,
    "ewc++": ("penalty.strength", (100, 10000)),
    "rwalk": ("penalty.strength", (0.1, 1)),
    "upgd": ("step.sigma", (0.001, 0.1)),
    "ocar": _DAMPING,
    "tmln": _DAMPING,
    "tmln-static": _DAMPING,
    "tmln-euclidean": _DAMPING,
    "er-ace": _MOMENTUM,
    "der++": _DISTILLED,
    "er+": _MOMENTUM,
    "der+": _DISTILLED,
    "tmln+": _DAMPING,
    "tmln+der": _DAMPING,
    "tmln-kfac": _DAMPING,
    "tmln-kfac+": _DAMPING,
    "tmln-kfac+der": _DAMPING,
    "ocar+": _DAMPING,
    "ocar+der": _DAMPING,
    "icarl": _MOMENTUM,
    "wa": _MOMENTUM,
    "cls-er": _MOMENTUM,
    "tmln with momentum": _DAMPING,
    "tmln-kfac+ with momentum": _DAMPING,
    "ocar with momentum": _DAMPING,
    "ocar+der with momentum": _DAMPING,
    "der++ with separate passes": _DISTILLED,
}
"""The main strength of each method, and its two values."""


def list_tuned_methods(setup: BenchmarkSetup) -> list[str]:
    """Return the methods in the tables of this benchmark."""
    return [method for method in MAIN if setup.has_recipes or method in PAPER]


@dataclass(frozen=True)
class Attempt:
    """One point of a method's grid and its validation accuracy; None if missing or diverged."""

    settings: Mapping[str, Any]
    value: float | None
    why: str = ""


def list_grid(setup: BenchmarkSetup, method: str) -> list[dict[str, Any]]:
    """Return the settings to try: every rate with every strength."""
    field, values = MAIN[method]
    found = []
    for value in values:
        full = setup.plain(method, SEED, {field: value}).resolved()["settings"]
        unit = full.get("step.damping", 1.0) * (1 - full.get("step.momentum", 0.0))
        found += [{"lr": float(f"{rate * unit:.6g}"), field: value} for rate in RATES]
    return found


def make_trial(setup: BenchmarkSetup, method: str, settings: Mapping[str, Any]) -> RunConfig:
    """Return the run of one trial."""
    return setup.plain(method, SEED, {**settings, "benchmark.validation": VALIDATION})


def runs(scale: Scale) -> list[RunConfig]:
    """Return every trial of every method on every benchmark."""
    return [
        make_trial(setup, method, settings)
        for setup in scale.setups.values()
        for method in (list_tuned_methods(setup) if scale.tuned else ())
        for settings in list_grid(setup, method)
    ]


def read_attempts(setup: BenchmarkSetup, method: str, find_row: Callable[[str], Result | None]) -> list[Attempt]:
    """Return the results of one method's trials."""
    found = []
    for settings in list_grid(setup, method):
        result = find_row(run_id(make_trial(setup, method, settings)))
        value = None if result is None or result.diverged else result.metrics.get("val_acc")
        why = "not run" if result is None else "diverged" if result.diverged else ""
        sound = value is not None and math.isfinite(value)
        found.append(Attempt(settings, float(value) if sound and value is not None else None, why))
    return found


def choose_best(found: Sequence[Attempt]) -> Attempt | None:
    """Return the first with the highest validation accuracy; None unless all have run."""
    if any(attempt.why == "not run" for attempt in found):
        return None
    sound = [attempt for attempt in found if attempt.value is not None]
    return max(sound, key=lambda attempt: attempt.value or 0.0, default=None)


def render(study: Study) -> Page:
    """Return a sheet per benchmark: every trial, the chosen ones in bold."""
    page = Page("tuning", TITLE)
    if not study.scale.tuned:
        return _fill_untuned(page, study.scale)
    for setup in study.scale.setups.values():
        lines = [["method", "main strength", *(f"rate {rate:g}" for rate in RATES), "chosen"]]
        for method in list_tuned_methods(setup):
            found = read_attempts(setup, method, study.result)
            chosen = choose_best(found)
            lines += _lines(method, found, chosen)
            page.records.extend(_records(setup, method, found, chosen))
            if chosen is not None and dict(chosen.settings) != dict(setup.chosen.get(method, {})):
                page.notes.append(f"{setup.benchmark}, {method}: the tables use {dict(setup.chosen.get(method, {}))}")
        page.sheets.append(Sheet(setup.title, lines))
    page.notes.append(
        f"Accuracy on {VALIDATION:.0%} of the training data, seed {SEED}, which no table has. A rate is that of a step "
        "where nothing shields: eta / (lambda * (1 - momentum))"
    )
    return page


def _fill_untuned(page: Page, scale: Scale) -> Page:
    """Return the settings of all methods at a scale without tuning."""
    for setup in scale.setups.values():
        lines = [["method", "lr", "main strength"]]
        for method, (field, _) in MAIN.items():
            full = setup.config(method).resolved()
            value = full["settings"][field]
            lines.append([method, f"{full['lr']:g}", f"{field} = {value:g}"])
            page.records.append({"benchmark": setup.benchmark, "method": method, "lr": full["lr"], field: value})
        page.sheets.append(Sheet(setup.title, lines))
    page.notes.append(f"nothing is tuned at scale {scale.name}: every method runs at its own numbers")
    return page


def _lines(method: str, found: Sequence[Attempt], chosen: Attempt | None) -> list[list[str]]:
    field, values = MAIN[method]
    lines = []
    for k, value in enumerate(values):
        part = found[k * len(RATES) : (k + 1) * len(RATES)]
        cells = [a.why if a.value is None else f"{100 * a.value:.1f}" for a in part]
        cells = [Strong(cell) if a is chosen else cell for a, cell in zip(part, cells, strict=True)]
        mine = chosen is not None and chosen in part
        best = " ".join(f"{key}={item:g}" for key, item in chosen.settings.items()) if mine and chosen else ""
        lines.append([method if not k else "", f"{field} = {value:g}", *cells, best])
    return lines


def _records(
    setup: BenchmarkSetup, method: str, found: Sequence[Attempt], chosen: Attempt | None
) -> list[Mapping[str, Any]]:
    return [
        {
            "benchmark": setup.benchmark,
            "method": method,
            "settings": dict(attempt.settings),
            "val_acc": attempt.value,
            "why": attempt.why,
            "chosen": attempt is chosen,
        }
        for attempt in found
    ]


ITEM = Item("tuning", TITLE, runs, render)


def choose_settings(scale: Scale, store: Store) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return the settings of complete searches by benchmark and method, as in ``chosen.json``."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for setup in scale.setups.values():
        winners = {
            method: choose_best(read_attempts(setup, method, store.result)) for method in list_tuned_methods(setup)
        }
        found[setup.benchmark] = {method: dict(one.settings) for method, one in winners.items() if one is not None}
    return found


def main(folder: str) -> None:
    """Write ``chosen.json`` from a folder of runs: ``python -m tmln.paper.tuning RUNS``."""
    place = Path(__file__).with_name("chosen.json")
    place.write_text(json.dumps(choose_settings(SCALES["cpu"], Store(Path(folder))), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
