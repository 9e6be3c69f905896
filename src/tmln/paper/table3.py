"""Table 3: hyper-parameters as they are run, and the protocol of each benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tmln.methods.recipes import RECIPES
from tmln.paper.notes import select_notes
from tmln.paper.published import MEMORY, PROTOCOL, TABLE3
from tmln.paper.scales import TITLES
from tmln.paper.study import Item, Page, Sheet, Study, no_runs
from tmln.paper.tables import METHODS

TITLE = "Table 3: hyper-parameters"
BENCHMARK = "split-cifar100"
SAID = ("silent", "eta", "momentum", "ewc++", "rwalk", "width", "core50 settings")
UNSTATED = {
    "naive": ("step.momentum",),
    "er": ("step.momentum",),
    "ewc++": ("penalty.alpha", "penalty.proximal", "step.momentum"),
    "rwalk": ("penalty.eps", "penalty.normalize", "step.momentum"),
    "upgd": ("step.factor", "step.variant", "step.weight_decay"),
    "ocar": ("step.ema", "step.update_every", "step.fisher"),
    "tmln": ("step.eps", "step.form", "step.momentum"),
}


def render(study: Study) -> Page:
    """Return each recipe's settings beside those that the paper states."""
    setup = study.setup(BENCHMARK)
    used = {method: setup.config(method).resolved()["settings"] for method in METHODS if not RECIPES[method].joint}
    body, notes = [], []
    for method, settings in used.items():
        stated = _stated(method, settings)
        for key in (*stated, *UNSTATED[method]):
            symbol, printed = stated.get(key, ("", "not stated"))
            same = not isinstance(printed, str) and float(printed) == float(settings[key])
            body.append([METHODS[method], key, symbol, _text(printed), _text(settings[key])])
            if key in stated and not same:
                said = f"{METHODS[method]}: {key} is {_text(settings[key])} on {setup.benchmark}, not the paper's"
                notes.append(f"{said} {_text(printed)}: that is what runs of this benchmark take unless told otherwise")
    table = Sheet(f"as they run on {setup.title}", [["method", "setting", "symbol", "paper", "ours"], *body])
    records: list[Mapping[str, Any]] = [
        {"method": method, "setting": key, "ours": value, "paper": _stated(method, settings).get(key, ("", None))[1]}
        for method, settings in used.items()
        for key, value in settings.items()
    ]
    return Page("table3", TITLE, [table, _protocol(study)], records, [*notes, *select_notes(SAID, study.scale)])


def _stated(method: str, settings: Mapping[str, Any]) -> dict[str, tuple[str, float]]:
    listed = dict(TABLE3.get(method, {}))
    if "replay.capacity" in settings:
        listed.setdefault("replay.capacity", ("B", MEMORY))
    return listed


def _protocol(study: Study) -> Sheet:
    lines = [["benchmark", "whose", "runs on", "tasks", "epochs", "network", "batch", "eta", "seeds"]]
    for benchmark, (tasks, epochs, network, seeds) in PROTOCOL.items():
        setup = study.setup(benchmark)
        full = setup.config("tmln").resolved()
        options = ", ".join(f"{key} {value}" for key, value in full["model_options"].items() if key != "dropout")
        ours = [setup.benchmark, full["benchmark_options"]["tasks"], full["epochs"], f"{full['model']}, {options}"]
        ours += [full["batch_size"], full["lr"], study.scale.seeds]
        paper = [benchmark, tasks or "not stated", epochs, network, "not stated", "not stated", seeds]
        lines.append([TITLES[benchmark], "ours", *map(_text, ours)])
        lines.append([TITLES[benchmark], "paper", *map(_text, paper)])
    return Sheet("protocol", lines)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


ITEM = Item("table3", TITLE, no_runs, render)
