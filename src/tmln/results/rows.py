"""Runs become a table: one row a method, mean and spread over seeds, compared seed by seed with a reference row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tmln.lab.oracle import REFERENCES
from tmln.results.statistics import ANY, POSITIVE, Comparison, Range, Summary, compare, summarise
from tmln.suggest import did_you_mean

SHARE: Range = (0.0, 1.0)
CHANGE: Range = (-1.0, 1.0)  # the difference of two shares


@dataclass(frozen=True)
class Metric:
    """How a number of a result is shown; ``percent`` marks fractions, ``digits`` is how others are written."""

    heading: str
    about: str
    more_is_better: bool = True
    percent: bool = True
    within: Range = SHARE
    digits: str = ".1f"

    @property
    def title(self) -> str:
        return f"{self.heading} % {'↑' if self.more_is_better else '↓'}" if self.percent else self.heading


METRICS = {
    "acc": Metric("ACC", "accuracy over all tasks at the end"),
    "fm": Metric("FM", "forgetting: how far tasks fell from their best", more_is_better=False, within=CHANGE),
    "int": Metric("INT", "intransigence: how far new tasks stay behind the reference", False, within=CHANGE),
    "int_all": Metric("INT all", "intransigence, the first task included", more_is_better=False, within=CHANGE),
    "int_last": Metric("INT last", "intransigence of the last task alone", more_is_better=False, within=CHANGE),
    "bwt": Metric("BWT", "backward transfer: what later tasks did to earlier ones", within=CHANGE),
    "fwt": Metric("FWT", "forward transfer: what earlier tasks gave to later ones", within=CHANGE),
    "learning_accuracy": Metric("LA", "accuracy on each task when it had just been learned"),
    "average_anytime_accuracy": Metric("AAA", "accuracy on the tasks seen so far, averaged over time"),
    "acc_task_masked": Metric("masked ACC", "accuracy when the task is told at test time"),
    "acc_train": Metric("train ACC", "accuracy on the training data of all tasks at the end"),
    "rate": Metric(
        "rate", "eta/lambda: the learning rate without curvature, at the start", False, False, POSITIVE, digits=".3g"
    ),
    "seconds": Metric("seconds", "the whole run", more_is_better=False, percent=False, within=POSITIVE),
}
SHOWN = ("acc", "fm", "int")
NO_CONTEST = ("rate", "seconds")  # of which the best is no merit of a method


def metric_of(name: str) -> Metric:
    """The known ones, and the accuracy on a benchmark's extra test set: ``acc_official``."""
    within = SHARE if name.startswith("acc_") else ANY
    about = "accuracy on an extra test set at the end"
    return METRICS.get(name) or Metric(f"ACC {name.removeprefix('acc_')}", about, within=within)


@dataclass(frozen=True)
class Row:
    """One method on one benchmark: its metrics by seed, and what is missing."""

    benchmark: str
    label: str
    values: dict[str, dict[int, float]]  # metric -> seed -> value
    missing: tuple[int, ...] = ()
    diverged: tuple[int, ...] = ()
    oracles: tuple[str, ...] = ()
    lr: float = math.nan  # eta, as configured
    summaries: dict[str, Summary] = field(default_factory=dict)

    def summary(self, metric: str) -> Summary:
        """Of no values where the runs do not have the metric."""
        return self.summaries.get(metric) or summarise([])

    def against(self, other: Row, metric: str) -> Comparison:
        """The paired difference to another row, seed by seed."""
        first, second = self.values.get(metric, {}), other.values.get(metric, {})
        return compare(first, second, within=metric_of(metric).within)

    @property
    def rate(self) -> float:
        """eta/lambda without what rounding does to it: 0.01 / 0.1 is 0.1 here."""
        return float(f"{self.summary('rate').mean:.9g}")

    @property
    def competes(self) -> bool:
        """Not so the references, which see more of the data at once, or fewer."""
        return self.label.partition(" ")[0] not in REFERENCES


def rows_of(results: Iterable[dict[str, Any]]) -> list[Row]:
    """One row for each configuration apart from its seed, in order of benchmark, then of mean accuracy."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    labels = label_methods(results := list(results))
    for result, label in zip(results, labels, strict=True):
        groups.setdefault((str(result["benchmark"]), label), []).append(result)
    seeds: dict[str, set[int]] = {}
    for (benchmark, _), members in groups.items():
        seeds.setdefault(benchmark, set()).update(int(r["seed"]) for r in members)
    rows = [_row(benchmark, label, members, seeds[benchmark]) for (benchmark, label), members in groups.items()]
    return sorted(rows, key=lambda row: (row.benchmark, -_sortable(row.summary("acc").mean), row.label))


def label_methods(results: Sequence[dict[str, Any]]) -> list[str]:
    """The method's name; where runs of one method on one benchmark differ, with the fields in which they do."""
    flat = [flat_fields({k: v for k, v in r["config"].items() if k != "seed"}) for r in results]
    found: dict[tuple[Any, Any], dict[str, set[str | None]]] = {}  # a method's fields, and the values they take
    for fields, result in zip(flat, results, strict=True):
        kin = found.setdefault((result["benchmark"], result["method"]), {key: set() for key in fields})
        for key in kin.keys() | fields.keys():
            kin.setdefault(key, {None}).add(fields.get(key))
    labels = []
    for fields, result in zip(flat, results, strict=True):
        kin = found[result["benchmark"], result["method"]]
        shown = [f"{key.removeprefix('settings.')}={fields[key]}" for key in sorted(fields) if len(kin[key]) > 1]
        labels.append(" ".join([str(result["method"]), *shown]))
    return labels


def rates_matter(rows: Iterable[Row]) -> bool:
    """Whether some row's rate is not what its configuration says, or not that of the others."""
    found = [row for row in rows if row.competes and not math.isnan(row.rate)]
    return len({row.rate for row in found}) > 1 or any(row.rate != row.lr for row in found)


def columns_of(rows: Sequence[Row], metrics: Sequence[str] | None = None) -> tuple[str, ...]:
    """What a table shows: the metrics asked for, or ACC, FM, INT, extra test sets, and seconds."""
    there = {metric for row in rows for metric in row.summaries}
    if metrics is None:
        extra = sorted(name for name in there if name.startswith("acc_") and name not in METRICS)
        asked = [name for name in ("acc_train",) if name in there]  # was asked for when the run was made
        return (*SHOWN, *extra, *asked, *(["rate"] if rates_matter(rows) else []), "seconds")
    for name in metrics:
        if name not in there and name not in METRICS:
            known = ", ".join(sorted(there | METRICS.keys()))
            raise ValueError(f"unknown metric {name!r}{did_you_mean(name, there | METRICS.keys())} (metrics: {known})")
    return tuple(metrics)


def best_rows(rows: Sequence[Row], metric: str) -> set[str]:
    """The labels of the best mean; the oracle, which sees all data at once, does not compete."""
    means = {
        row.label: row.summary(metric).mean for row in rows if row.competes and math.isfinite(row.summary(metric).mean)
    }
    if not means:
        return set()
    top = (max if metric_of(metric).more_is_better else min)(means.values())
    return {label for label, mean in means.items() if mean == top}


def _row(benchmark: str, label: str, members: list[dict[str, Any]], seeds: set[int]) -> Row:
    good = [r for r in members if not r.get("diverged")]
    values: dict[str, dict[int, float]] = {}
    for result in good:
        found = {
            **result["metrics"],
            "seconds": result.get("seconds", math.nan),
            "rate": result.get("effective_rate", math.nan),
        }
        for metric, value in found.items():
            if isinstance(value, (int, float)):
                values.setdefault(metric, {})[int(result["seed"])] = float(value)
    return Row(
        benchmark,
        label,
        values,
        missing=tuple(sorted(seeds - {int(r["seed"]) for r in members})),
        diverged=tuple(sorted(int(r["seed"]) for r in members if r.get("diverged"))),
        oracles=tuple(sorted({str(r.get("oracle", "none")) for r in good if "int" in r["metrics"]})),
        lr=_number(members[0]["config"].get("lr")),
        summaries={
            metric: summarise(found.values(), within=metric_of(metric).within) for metric, found in values.items()
        },
    )


def flat_fields(value: Any, prefix: str = "") -> dict[str, str]:
    """A nested configuration as ``settings.step.damping: '0.1'``."""
    if isinstance(value, dict) and value:
        found: dict[str, str] = {}
        for key, item in value.items():
            found |= flat_fields(item, f"{prefix}.{key}" if prefix else str(key))
        return found
    return {prefix: str(value)}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan


def _sortable(value: float) -> float:
    return value if math.isfinite(value) else -math.inf
