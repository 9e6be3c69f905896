"""Group runs into rows: one per configuration, with its metrics by seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tmln.analysis.comparability import assign_tables
from tmln.analysis.labels import RunLabel, flat_fields, label_runs
from tmln.analysis.statistics import Comparison, Summary, compare, mean, summarise
from tmln.experiments.result import REFERENCES, Result
from tmln.metrics import METRICS, in_order, metric_of, row_of
from tmln.suggest import did_you_mean


@dataclass(frozen=True)
class Row:
    """One configuration of a method on one benchmark: metrics by seed, and missing seeds."""

    benchmark: str
    label: str
    values: Mapping[str, Mapping[int, float]]  # metric -> seed -> value
    missing: tuple[int, ...] = ()
    diverged: tuple[int, ...] = ()
    oracles: tuple[str, ...] = ()
    lr: float = math.nan  # eta, as configured
    results: tuple[Result, ...] = ()
    table: str = ""  # what its table is called; by the benchmark unless given
    alone: bool = False  # asked for by name: a method of its own, not one of its method's settings to choose from
    variant: str = ""  # the method with the components in which it differs, or the name given to it
    shared: tuple[str, ...] = ()  # settings that differ from the method's, as in all rows that have them
    chosen: tuple[str, ...] = ()  # settings that a search chose
    summaries: dict[str, Summary] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def method(self) -> str:
        """Return the method with the components in which it differs, or the name given to it."""
        return self.variant or self.label.partition(" ")[0]

    @property
    def title(self) -> str:
        """Return the title of its table; rows of one table are comparable."""
        return self.table or self.benchmark

    @property
    def contender(self) -> str:
        """Return what competes: a variant of a method, whatever its settings, or the row alone."""
        return self.label if self.alone else self.method

    @property
    def settings(self) -> str:
        """Return the settings in which it differs from the method's own or from its other rows."""
        return self.label.removeprefix(self.method).strip()

    def summary(self, metric: str) -> Summary:
        """Summarise a metric over seeds; ``n=0`` where the runs do not have it."""
        if metric not in self.summaries:
            found = self.values.get(metric, {}).values()
            self.summaries[metric] = summarise(found, within=metric_of(metric).within)
        return self.summaries[metric]

    def compare_with(self, other: Row, metric: str) -> Comparison:
        """Return the paired difference to another row, seed by seed."""
        first, second = self.values.get(metric, {}), other.values.get(metric, {})
        return compare(first, second, within=metric_of(metric).within)

    @property
    def rate(self) -> float:
        """Return eta/(lambda (1 - momentum)) without rounding noise: 0.01 / 0.1 is 0.1."""
        return float(f"{self.summary('rate').mean:.9g}")

    @property
    def step_rate(self) -> float:
        """Return eta/lambda, the rate of a single step, without rounding noise."""
        found = [result.effective_rate for result in self.results if not result.diverged]
        return float(f"{mean(found):.9g}") if found else math.nan

    @cached_property
    def accuracy_at_best(self) -> float:
        """Return the mean over tasks of max_k R[k][j], and over seeds with a whole matrix."""
        whole = [r.accuracy for r in self.results if not r.diverged and r.accuracy]
        whole = [matrix for matrix in whole if len(matrix) == len(matrix[0])]
        return mean(mean(map(max, zip(*matrix, strict=True))) for matrix in whole)

    @property
    def fields(self) -> dict[str, str]:
        """Return its configuration, flat, without the seed."""
        config = self.results[0].config if self.results else {}
        return flat_fields({key: value for key, value in config.items() if key != "seed"})

    @property
    def competes(self) -> bool:
        """Return whether it competes; references, which see other data, do not."""
        return (self.results[0].method if self.results else self.method) not in REFERENCES


def group_rows(results: Iterable[Result]) -> list[Row]:
    """Return one row per configuration, by table, then by mean accuracy.

    References that learn all tasks as one are no rows.
    """
    given = [result for result in results if not result.merged]
    entries = assign_tables(given)
    changed = [result.changed for result in given]
    labels = label_runs([entry.config for entry in entries], changed, [result.searched for result in given])
    groups: dict[tuple[str, RunLabel], list[Result]] = {}
    seeds: dict[str, set[int]] = {}
    for result, entry, label in zip(given, entries, labels, strict=True):
        groups.setdefault((entry.table, label), []).append(result)
        seeds.setdefault(entry.table, set()).add(result.seed)
    found: dict[str, list[Row]] = {}
    for (table, label), members in groups.items():
        found.setdefault(table, []).append(_row(table, label, members, seeds[table]))
    rows = [row for mine in found.values() for row in label_matched_rates(mine)]
    return sorted(rows, key=lambda row: (row.title, -_sortable(row.summary("acc").mean), row.label))


def group_by_table(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows by table (:mod:`tmln.analysis.comparability`)."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.title, []).append(row)
    return groups


def has_several_rates(rows: Iterable[Row]) -> bool:
    """Return whether rows differ in effective learning rate, or it differs from lr."""
    found = [row for row in rows if row.competes and not math.isnan(row.rate)]
    return len({row.rate for row in found}) > 1 or any(row.rate != row.lr for row in found)


def columns_of(rows: Sequence[Row], metrics: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the metrics that a table shows: those asked for, or the default ones."""
    there = {metric for row in rows for metric in row.values}
    if metrics is None:
        always = {name for name, metric in METRICS.items() if metric.shown == "always"}
        found = {name for name in there if row_of(name) is not None and metric_of(name).shown == "there"}
        return tuple(in_order(always | found | ({"rate"} if has_several_rates(rows) else set())))
    known = sorted(there | {name for name in METRICS if not name.endswith("*")})
    for name in metrics:
        if name not in known:
            raise ValueError(f"unknown metric {name!r}{did_you_mean(name, known)} (metrics: {', '.join(known)})")
    return tuple(metrics)


def best_rows(rows: Sequence[Row], metric: str) -> set[str]:
    """Return the labels with the best mean; references do not compete."""
    means = {
        row.label: row.summary(metric).mean for row in rows if row.competes and math.isfinite(row.summary(metric).mean)
    }
    if not means:
        return set()
    top = (max if metric_of(metric).more_is_better else min)(means.values())
    return {label for label, mean in means.items() if mean == top}


def best_row(rows: Sequence[Row], metric: str = "acc") -> Row | None:
    """Return the first row with the best mean."""
    top = best_rows(rows, metric)
    return next((row for row in rows if row.label in top), None)


def _row(table: str, label: RunLabel, members: list[Result], seeds: set[int]) -> Row:
    good = [result for result in members if not result.diverged]
    values: dict[str, dict[int, float]] = {}
    for result in good:
        for metric, value in result.metrics.items():
            values.setdefault(metric, {})[result.seed] = value
    lr = members[0].config.get("lr")
    return Row(
        members[0].benchmark,
        label.text,
        values,
        missing=tuple(sorted(seeds - {result.seed for result in members})),
        diverged=tuple(sorted(result.seed for result in members if result.diverged)),
        oracles=tuple(sorted({result.oracle for result in good if "int" in result.metrics})),
        lr=float(lr) if isinstance(lr, (int, float)) else math.nan,
        results=tuple(members),
        table=table,
        variant=label.variant,
        shared=label.shared,
        chosen=label.chosen,
    )


def _sortable(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


MOMENTUM = "settings.step.momentum"
AT_RATE = " at eta/lambda"


def label_matched_rates(rows: Sequence[Row]) -> list[Row]:
    """Label rows at another method's effective learning rate ``naive at eta/lambda``.

    Such a row differs from the only other row of its method in its rate and in having no momentum,
    and its rate is one at which another method starts though its lr is not (TMLN's eta/lambda). It
    competes as a row of its own; rows with more settings belong to a search.
    """
    steps = {row.step_rate for row in rows if row.competes and row.step_rate != row.lr} - {math.nan}
    named: dict[str, tuple[str, bool]] = {}  # label -> the new one, and whether it is the control's
    for method in {row.method for row in rows if row.competes}:
        group = [row for row in rows if row.method == method]
        fast = [row for row in group if row.lr == row.step_rate in steps and _is_plain(row)]
        if len(group) == 2 and len(fast) == 1 and _differ_in(*group) <= {"lr", MOMENTUM}:
            named |= {row.label: (method, False) for row in group}
            named[fast[0].label] = (f"{method}{AT_RATE}", True)
    return [
        replace(row, label=named[row.label][0], alone=named[row.label][1]) if row.label in named else row
        for row in rows
    ]


def _is_plain(row: Row) -> bool:
    return row.fields.get(MOMENTUM, "0") in ("0", "0.0")


def _differ_in(first: Row, second: Row) -> set[str]:
    one, other = first.fields, second.fields
    return {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}
