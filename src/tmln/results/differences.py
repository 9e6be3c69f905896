"""How far each row of a table is from one of them, for people to use: points, how sure, seeds to be sure, price."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tmln.metrics import METRICS
from tmln.results.contest import FEWEST, Contest, Duel, contest
from tmln.results.learned import not_learned
from tmln.results.notes import UNLEARNED
from tmln.results.paired import TestName
from tmln.results.rows import Row, columns_of, comparable
from tmln.results.tables import row_lines
from tmln.results.textgrid import Strong
from tmln.suggest import did_you_mean

HEADING = ("method", "shared", "Δ ACC", "corrected 95%", "p", "corrected p", "seeds to tell", "seconds", "MiB")


def difference_lines(rows: Sequence[Row], found: Contest) -> list[list[str]]:
    """Heading, the reference, and the others: those that are told from it stand out in their corrected p."""
    lines, lazy = [list(HEADING)], not_learned(rows)
    for row in rows:
        label = f"{row.label} {UNLEARNED}" if row.label in lazy else row.label
        duel = found.of(row)
        price = [_number(row.summary("seconds").mean), _number(row.summary("memory").mean)]
        if duel is None:
            lines.append([label, str(row.summary("acc").n), "reference", "-", "-", "-", "-", *price])
            continue
        corrected = p_cell(duel.corrected)
        lines.append(
            [
                label,
                str(duel.plain.n),
                points(duel.plain.mean_difference),
                _interval(duel),
                p_cell(duel.p),
                Strong(corrected) if duel.apart else corrected,
                _needed(duel),
                *price,
            ]
        )
    return lines


OTHERS = ("n", "interval", "shared", "delta", "delta_interval", "p", "holm", "seeds_needed")


def column_lines(rows: Sequence[Row], found: Contest, columns: Sequence[str]) -> list[list[str]]:
    """One table of what was asked for: metrics, and of :data:`OTHERS` what says how sure they are."""
    metrics = [name for name in columns if name not in (*OTHERS, "method")]
    if unknown := [name for name in metrics if name not in {m for row in rows for m in row.values} | set(METRICS)]:
        known = [*OTHERS, *columns_of(rows)]
        hint = did_you_mean(unknown[0], known)
        raise ValueError(f"unknown column {unknown[0]!r}{hint} (columns: any metric, and {', '.join(OTHERS)})")
    places = ["method", "n", *metrics, "interval", "method", *OTHERS[2:], "seconds alone", "memory alone"]
    joined = [
        dict(zip(places, [*first, *second], strict=True))
        for first, second in zip(row_lines(rows, metrics, found.test), difference_lines(rows, found), strict=True)
    ]
    wanted = list(dict.fromkeys(["method", *columns]))
    return [[line[name] for name in wanted] for line in joined]


def row_records(
    rows: Sequence[Row], metrics: Sequence[str] | None = None, test: TestName = "t", reference: str | None = None
) -> list[Mapping[str, Any]]:
    """Flat, for a CSV file: of each metric n, mean, deviation, interval and every seed's value; then the comparison."""
    columns = columns_of(rows, metrics)
    return [
        {
            "benchmark": row.where,
            "method": row.label,
            **{key: value for m in columns for key, value in row.summary(m).parts(f"{m}_").items()},
            **_compared(found, row),
            **{f"{m}_seed_{seed}": value for m in columns for seed, value in _by_seed(row, m).items()},
        }
        for row, found in _with_contests(rows, test, reference)
    ]


def row_tree(
    rows: Sequence[Row], metrics: Sequence[str] | None = None, test: TestName = "t", reference: str | None = None
) -> list[Mapping[str, Any]]:
    """Nested, for JSON: with what is missing, too."""
    columns = columns_of(rows, metrics)
    return [
        {
            "benchmark": row.where,
            "method": row.label,
            "missing": row.missing,
            "diverged": row.diverged,
            "not_learned": not_learned(comparable(rows)[row.where]).get(row.label),
            "metrics": {m: {**row.summary(m).parts(), "values": _by_seed(row, m)} for m in columns},
            "compared": _compared(found, row),
        }
        for row, found in _with_contests(rows, test, reference)
    ]


def points(difference: float) -> str:
    """``+1.2``: percent of accuracy."""
    return "-" if math.isnan(difference) else f"{100 * difference:+.1f}"


def p_cell(p: float) -> str:
    """``0.012`` or ``<0.001``; a dash where no test applies."""
    return "-" if math.isnan(p) else f"{p:.3f}" if p >= 0.001 else "<0.001"


def _interval(duel: Duel) -> str:
    return "-" if math.isnan(duel.low) else f"[{100 * duel.low:+.1f}, {100 * duel.high:+.1f}]"


def _needed(duel: Duel) -> str:
    if duel.apart:
        return "told"
    if duel.needed is None:
        return "-" if duel.plain.n < FEWEST or math.isnan(duel.p) or duel.p == 1.0 else ">1000"
    return str(max(duel.needed, FEWEST))


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"


def _by_seed(row: Row, metric: str) -> dict[int, float]:
    return dict(sorted(row.values.get(metric, {}).items()))


def _compared(found: Contest, row: Row) -> dict[str, Any]:
    """``difference`` is the row's ACC minus the reference's; low and high are of the corrected interval."""
    duel = found.of(row)
    reference = None if found.reference is None else found.reference.label
    numbers: dict[str, Any] = dict.fromkeys(("shared", "difference", "low", "high", "p", "p_holm", "seeds_to_tell"))
    if duel is not None:
        numbers = {
            "shared": duel.plain.n,
            "difference": duel.plain.mean_difference,
            "low": duel.low,
            "high": duel.high,
            "p": duel.p,
            "p_holm": duel.corrected,
            "seeds_to_tell": duel.needed,
        }
    apart = None if duel is None else duel.apart
    return {
        "reference": reference,
        "test": found.test,
        **numbers,
        "told_apart": apart,
        "peak_mib": row.summary("memory").mean,
    }


def _with_contests(rows: Sequence[Row], test: TestName, reference: str | None) -> list[tuple[Row, Contest]]:
    """Each row with its table's contest; a row that was named is the reference of the tables that have it."""
    tables = {}
    for name, mine in comparable(rows).items():
        named = next((row for row in mine if row.label == reference), None)
        tables[name] = contest(mine, "acc", test, named)
    return [(row, tables[row.where]) for row in rows]
