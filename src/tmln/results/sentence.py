"""What a table says, in one sentence: which method is best, by how much, how sure that is, and at what price."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tmln.results.chosen import Choice, choices
from tmln.results.rows import Row, best_row

SURE = 0.05  # a p-value below it is called a difference


def sentence(rows: Sequence[Row]) -> str:
    """Of the rows of one benchmark, one a method: ``joint``, which sees all data at once, does not compete, nor does
    what was chosen among several by the test data, which is named at the end.
    """
    if not rows:
        return "Nothing has finished yet."
    where = rows[0].benchmark
    found = choices(rows)
    if not found:
        return f"No method has an accuracy on {where} yet."
    fair, names = [choice.row for choice in found if choice.fair], {id(choice.row): choice.name for choice in found}
    aside = ", ".join(_aside(choice) for choice in found if not choice.fair)
    first = best_row(fair)
    if first is None:
        return (
            f"No method on {where} was chosen without its test data: {aside}. benchmark.validation=0.1 is to choose by."
        )
    second = best_row([row for row in fair if row is not first])
    said = f"{_lead(names, first, second)}{_forgetting(names, fair, first)}{_price(first, second)}"
    return f"{said}; left out: {aside}." if aside else f"{said}."


def p_text(p: float) -> str:
    """``= 0.012`` or ``< 0.001``."""
    return f"= {p:.3f}" if p >= 0.001 else "< 0.001"


def _aside(choice: Choice) -> str:
    return f"{choice.name} with ACC {100 * choice.row.summary('acc').mean:.1f}"


def _lead(names: Mapping[int, str], first: Row, second: Row | None) -> str:
    acc, name = first.summary("acc"), names[id(first)]
    spread = f" ± {100 * acc.std:.1f}" if acc.n > 1 else ""
    found = f"on {first.benchmark}: ACC {100 * acc.mean:.1f}{spread}"
    if second is None:
        return f"{name} is the only method {found} ({acc.n} seed{'s' * (acc.n > 1)})"
    gap = f"{100 * (acc.mean - second.summary('acc').mean):.1f} points above {names[id(second)]}"
    paired = first.against(second, "acc")
    if math.isnan(paired.p_value):
        return f"{name} leads {found}, {gap}, {_no_test(paired.n)}"
    if paired.p_value < SURE:
        return f"{name} is best {found}, {gap}, paired p {p_text(paired.p_value)}"
    return f"{name} leads {found}, {gap}, which {paired.n} seeds do not confirm (paired p {p_text(paired.p_value)})"


def _no_test(shared: int) -> str:
    if shared > 1:
        return "by the same on every seed, where no test applies"
    return "which one shared seed cannot confirm" if shared else "which no shared seed can confirm"


def _forgetting(names: Mapping[int, str], rows: Sequence[Row], first: Row) -> str:
    mine = first.summary("fm").mean
    if math.isnan(mine):
        return ""
    least = best_row(rows, "fm") or first
    said = f"; forgetting {100 * mine:.1f}"
    if least.summary("fm").mean == mine:
        return said + (", the least" if len(rows) > 1 else "")
    return f"{said}, where {names[id(least)]} has the least, {100 * least.summary('fm').mean:.1f}"


def _price(first: Row, second: Row | None) -> str:
    mine = first.summary("seconds").mean
    if math.isnan(mine):
        return ""
    other = math.nan if second is None else second.summary("seconds").mean
    than = "" if second is None or math.isnan(other) else f" ({second.method} {_duration(other)})"
    return f"; {_duration(mine)} a run{than}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
