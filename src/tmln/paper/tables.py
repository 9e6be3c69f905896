"""Tables 1, 2, 3 and 6: rows of methods beside the printed numbers, and their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tmln.analysis.notes import version_notes
from tmln.analysis.rows import Row
from tmln.analysis.significance import assess_significance
from tmln.analysis.summary_text import write_summary
from tmln.analysis.tables import column_lines
from tmln.analysis.text_table import Strong
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.reference_runs import equal_rate, reference_config
from tmln.methods.recipes import RECIPES, find_recipe
from tmln.metrics import metric_of
from tmln.paper.published import (
    MEMORY,
    METRICS,
    PROTOCOL,
    TABLE1,
    TABLE2,
    TABLE3,
    TABLE6,
    TABLE6_JOINT,
    Cells,
    select_notes,
)
from tmln.paper.scales import TITLES, BenchmarkSetup, Scale, split_variant
from tmln.paper.study import Item, Page, RequestedRow, Sheet, Study, find_row, no_runs

# what the paper's tables do not have
BESIDES = ("n", "interval", "learning_accuracy", "delta", "delta_interval", "holm", "seconds", "memory")
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


@dataclass(frozen=True)
class TableRow:
    """One row: its first cells, its runs, and printed numbers; ``ours`` if the paper lacks it."""

    cells: tuple[str, ...]
    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    paper: Cells = field(default_factory=dict)
    ours: bool = False
    swept: bool = False  # one of a grid of settings, none of which was chosen without test data

    @property
    def joint(self) -> bool:
        """Return whether its runs see all data at once: a reference that does not compete."""
        return find_recipe(split_variant(self.method)[0]).joint

    @property
    def label(self) -> str:
        """Return the row's name in notes: ``EWC++, lambda = 10``."""
        return ", ".join(cell for cell in self.cells[:2] if cell not in ("yes", "-", ""))


def match_rate(setup: BenchmarkSetup) -> dict[str, Any]:
    """Return the settings of plain SGD at TMLN's effective learning rate in task 1."""
    return equal_rate(setup.config("tmln"))


def list_configs(setup: BenchmarkSetup, lines: Sequence[TableRow], seeds: int) -> list[RunConfig]:
    """Return the runs that these rows need, joint references included."""
    requested = [setup.config(line.method, seed, line.changes) for line in lines for seed in range(seeds)]
    references = [reference_config(config, "prefix") for config in requested]
    return list({run_id(config): config for config in (*references, *requested) if config is not None}.values())


def make_metric_sheets(
    study: Study, setup: BenchmarkSetup, heads: Sequence[str], lines: Sequence[TableRow], seeds: int
) -> tuple[list[Sheet], list[Mapping[str, Any]], list[str]]:
    """Return the table, its records and notes; a second table of comparisons if rows compete."""
    found = [find_row(study, setup, line.method, line.changes, seeds) for line in lines]
    heading = [*heads, "n"]
    for metric in METRICS:
        heading += [metric_of(metric).title, "paper"]
        heading += ["peak"] if metric == "fm" else []
    competitors = list_competitors(lines, found)
    best = {metric: assess_significance(competitors, metric).bold_labels for metric in METRICS}
    body = []
    for line, each in zip(lines, found, strict=True):
        cells = [*line.cells, str(each.n)]
        for metric in METRICS:
            shown = "-" if line.joint and metric != "acc" else each.text(metric)
            strong = each.row is not None and make_competitor(line, each).label in best[metric]
            cells += [Strong(shown) if strong else shown, str(line.paper.get(metric, "-"))]
            if metric == "fm":
                cells.append("-" if line.joint else each.text("peak"))
        body.append(cells)
    records = [record for line, each in zip(lines, found, strict=True) for record in _records(setup, line, each)]
    sheets, notes = [Sheet(setup.title, [heading, *body])], _write_summaries(competitors)
    if notes:
        sheets.append(make_comparison_sheet(f"{setup.title}, against the best", lines, found, BESIDES))
    return sheets, records, [*notes, *write_notes(setup, lines, found)]


def make_comparison_sheet(
    title: str, lines: Sequence[TableRow], found: Sequence[RequestedRow], columns: Sequence[str]
) -> Sheet:
    """Return metrics of every row and its difference from the best, corrected for all pairs."""
    competitors = list_competitors(lines, found)
    text = (
        column_lines(competitors, assess_significance(competitors, "acc"), columns) if competitors else [["method", ""]]
    )
    absent = [line for line, each in zip(lines, found, strict=True) if not each.row]
    return Sheet(title, text + [[line.label, *["not run"] * max(1, len(text[0]) - 1)] for line in absent])


def list_competitors(lines: Sequence[TableRow], found: Sequence[RequestedRow]) -> list[Row]:
    """Return the rows that have run, as they compete."""
    return [make_competitor(line, each) for line, each in zip(lines, found, strict=True) if each.row]


def make_competitor(line: TableRow, found: RequestedRow) -> Row:
    """Return a row as it competes: a method of its own, or a setting of its method in a grid."""
    assert found.row is not None
    label = f"{line.method} {line.cells[1]}" if line.swept else line.label.removeprefix("+ ")
    return replace(found.row, label=label, alone=not line.swept, variant="")


def _write_summaries(competitors: Sequence[Row]) -> list[str]:
    """Return a summary of the table; nothing for grids, whose best is chosen on test data."""
    return [write_summary(competitors)] if any(row.alone and row.competes for row in competitors) else []


def write_notes(setup: BenchmarkSetup, lines: Sequence[TableRow], found: Sequence[RequestedRow]) -> list[str]:
    """Return the notes of a table: how it was run, and what is missing and why."""
    texts = [setup.remark]
    if setup.missing and not any(each.n for each in found):
        return [*texts, f"{setup.title} was not run: {setup.missing} is not at hand; tmln data get {setup.missing}"]
    single = [line.label for line, each in zip(lines, found, strict=True) if each.n == 1]
    if len(single) == len(lines):
        texts.append("one seed only: no deviation and no interval")
    for line, each in zip(lines, found, strict=True):
        notes = each.notes(f"{setup.benchmark}, {line.label}")
        texts += [note for note in notes if len(single) < len(lines) or "one seed only" not in note]
    results = [result for each in found if each.row for result in each.row.results]
    return texts + [f"{note}; a new --runs folder has them all of one" for note in version_notes(results)]


def _records(setup: BenchmarkSetup, line: TableRow, found: RequestedRow) -> list[Mapping[str, Any]]:
    """Return the numbers in percent, as in the paper."""
    records: list[Mapping[str, Any]] = []
    for metric in METRICS:
        printed = line.paper.get(metric)
        records.append(
            {
                "paper_benchmark": setup.paper,
                "benchmark": setup.benchmark,
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


@dataclass(frozen=True)
class MetricTable:
    """One table of ACC, FM and INT: benchmarks, heads of its first columns, rows and notes."""

    name: str
    title: str
    benchmarks: tuple[str, ...]
    heads: tuple[str, ...]
    list_rows: Callable[[BenchmarkSetup], list[TableRow]]
    notes: tuple[str, ...]
    is_grid: bool = False

    def list_runs(self, scale: Scale) -> list[RunConfig]:
        """Return the runs of all rows, and the references of INT."""
        seeds = scale.grid_seeds if self.is_grid else scale.seeds
        setups = [scale.setup(benchmark) for benchmark in self.benchmarks]
        return [config for setup in setups for config in list_configs(setup, self.list_rows(setup), seeds)]

    def render(self, study: Study) -> Page:
        """Return the page: metrics beside the printed numbers, and what was significant."""
        page = Page(self.name, self.title)
        seeds = study.scale.grid_seeds if self.is_grid else study.scale.seeds
        for benchmark in self.benchmarks:
            setup = study.setup(benchmark)
            sheets, records, notes = make_metric_sheets(study, setup, self.heads, self.list_rows(setup), seeds)
            page.sheets.extend(sheets)
            page.records.extend(records)
            page.notes.extend(notes)
        page.notes.extend(select_notes(self.notes, study.scale))
        return page

    @property
    def item(self) -> Item:
        """Return the entry for the table of items."""
        return Item(self.name, self.title, self.list_runs, self.render)


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
TABLE1_METHODS = tuple(METHODS)
AT_TMLNS_RATE = {"naive": "+ SGD at eta/lambda", "er": "+ ER at eta/lambda"}


def list_table1_rows(setup: BenchmarkSetup) -> list[TableRow]:
    """Return the paper's rows in order, with Naive and ER at TMLN's rate after them."""
    printed, rate, rows = TABLE1[setup.paper], match_rate(setup), []
    for method in TABLE1_METHODS:
        rows.append(TableRow((METHODS[method],), method, paper=printed[method]))
        if method in AT_TMLNS_RATE:
            rows.append(TableRow((AT_TMLNS_RATE[method],), method, rate, ours=True))
    return rows


def list_table2_rows(setup: BenchmarkSetup) -> list[TableRow]:
    """Return the paper's four rows, and TMLN without both components, with and without replay."""
    rate = match_rate(setup)
    return [
        TableRow(("Standard SGD", "-", "-"), "naive", paper=TABLE2["naive"]),
        TableRow(("+ SGD at eta/lambda", "-", "-"), "naive", rate, ours=True),
        TableRow(("+ ER at eta/lambda", "-", "-"), "er", rate, ours=True),
        TableRow(("TMLN-Static", "yes", "-"), "tmln-static", paper=TABLE2["tmln-static"]),
        TableRow(("TMLN-Euclidean", "-", "yes"), "tmln-euclidean", paper=TABLE2["tmln-euclidean"]),
        TableRow(("TMLN (full)", "yes", "yes"), "tmln", paper=TABLE2["tmln"]),
    ]


@dataclass(frozen=True)
class SweptSetting:
    """A swept setting, its symbol in the paper, additional values, and shared settings."""

    setting: str
    symbol: str
    more: tuple[float, ...] = ()
    shared: Mapping[str, Any] = field(default_factory=dict)


SWEPT = {
    "naive": SweptSetting("lr", "eta"),
    "er": SweptSetting("replay.capacity", "M"),
    "ewc++": SweptSetting("penalty.strength", "lambda"),
    "rwalk": SweptSetting("penalty.strength", "lambda", shared={"penalty.proximal": True}),
    "upgd": SweptSetting("step.beta_utility", "beta"),
    "ocar": SweptSetting("step.damping", "tau", more=(0.1,)),
    "tmln": SweptSetting("step.trajectory", "gamma"),
}


def list_table6_rows(setup: BenchmarkSetup) -> list[TableRow]:
    """Return a row per value of each swept setting; those missing in the paper are marked."""
    oracles = (method for method in METHODS if RECIPES[method].joint)
    rows = [TableRow((METHODS[method], "-"), method, paper={"acc": TABLE6_JOINT}) for method in oracles]
    for method, swept in SWEPT.items():
        if method == "rwalk":  # as it list_table6_runs in Table 1, with explicit steps
            strength = setup.config(method).resolved()["settings"][swept.setting]
            cells = (f"+ {METHODS[method]}", f"{swept.symbol} = {strength:g}, explicit")
            rows.append(TableRow(cells, method, ours=True, swept=True))
        for value in sorted({*TABLE6[method], *swept.more}):
            whole = int(value) if value.is_integer() else value
            paper = TABLE6[method].get(value, {})
            changes = {**swept.shared, swept.setting: whole}
            cells = (METHODS[method], f"{swept.symbol} = {value:g}")
            rows.append(TableRow(cells, method, changes, paper, ours=not paper, swept=True))
    return rows


TABLE1_ITEM = MetricTable(
    "table1",
    "Table 1: accuracy, forgetting and intransigence",
    tuple(TABLE1),
    ("method",),
    list_table1_rows,
    ("rate", "momentum", "ewc++", "joint", "int", "int reference", "core50 naive", "core50 tests", "core50 settings",
     "deviation"),
).item  # fmt: skip
TABLE2_ITEM = MetricTable(
    "table2",
    "Table 2: ablation",
    ("split-cifar10",),
    ("method", "F", "S"),
    list_table2_rows,
    ("eta", "control", "rate", "euclidean", "two deviations", "int", "deviation"),
).item
TABLE6_BENCHMARK = "split-cifar10"
TABLE6_ITEM = MetricTable(
    "table6",
    "Table 6: every method over its grid",
    (TABLE6_BENCHMARK,),
    ("method", "setting"),
    list_table6_rows,
    ("eta", "ewc++", "rwalk", "ocar grid", "ocar deviation", "tmln grid", "er", "two deviations", "int",
     "int reference", "deviation"),
    is_grid=True,
).item  # fmt: skip


def render(study: Study) -> Page:
    """Return each recipe's settings beside those that the paper states."""
    setup = study.setup(BENCHMARK)
    used = {method: setup.config(method).resolved()["settings"] for method in METHODS if not RECIPES[method].joint}
    body, notes = [], []
    for method, settings in used.items():
        stated = _list_stated(method, settings)
        for key in (*stated, *UNSTATED[method]):
            symbol, printed = stated.get(key, ("", "not stated"))
            same = not isinstance(printed, str) and float(printed) == float(settings[key])
            body.append([METHODS[method], key, symbol, _text(printed), _text(settings[key])])
            if key in stated and not same:
                difference = f"{METHODS[method]}: {key} is {_text(settings[key])} on {setup.benchmark}, not the paper's"
                notes.append(
                    f"{difference} {_text(printed)}: that is what runs of this benchmark take unless told otherwise"
                )
    table = Sheet(f"as they run on {setup.title}", [["method", "setting", "symbol", "paper", "ours"], *body])
    records: list[Mapping[str, Any]] = [
        {
            "method": method,
            "setting": key,
            "ours": value,
            "paper": _list_stated(method, settings).get(key, ("", None))[1],
        }
        for method, settings in used.items()
        for key, value in settings.items()
    ]
    return Page("table3", TITLE, [table, _protocol(study)], records, [*notes, *select_notes(SAID, study.scale)])


def _list_stated(method: str, settings: Mapping[str, Any]) -> dict[str, tuple[str, float]]:
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


TABLE3_ITEM = Item("table3", TITLE, no_runs, render)
