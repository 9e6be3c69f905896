"""What a table says, in one sentence: which method is best, by how much, how sure that is, and at what price."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tmln.results.rows import Row, best_row

SURE = 0.05  # a p-value below it is called a difference


def sentence(rows: Sequence[Row]) -> str:
    """Of the rows of one benchmark; ``joint``, which sees all data at once, does not compete."""
    if not rows:
        return "Nothing has finished yet."
    where = rows[0].benchmark
    first = best_row(rows)
    if first is None:
        return f"No method has an accuracy on {where} yet."
    others = [row for row in rows if row is not first]
    second = best_row([row for row in others if row.method != first.method]) or best_row(others)
    return f"{_lead(rows, first, second)}{_forgetting(rows, first)}{_price(first, second)}."


def p_text(p: float) -> str:
    """``= 0.012`` or ``< 0.001``."""
    return f"= {p:.3f}" if p >= 0.001 else "< 0.001"


def _named(row: Row, rows: Sequence[Row]) -> str:
    """``tmln (step.damping=0.2, best of 5)``: that it was chosen among several is said."""
    kin = [other for other in rows if other.method == row.method]
    if not row.settings:
        return row.label
    best = f", best of {len(kin)}" if len(kin) > 1 and best_row(kin) is row else ""
    return f"{row.method} ({row.settings.replace(' ', ', ')}{best})"


def _lead(rows: Sequence[Row], first: Row, second: Row | None) -> str:
    acc, name = first.summary("acc"), _named(first, rows)
    spread = f" ± {100 * acc.std:.1f}" if acc.n > 1 else ""
    found = f"on {first.benchmark}: ACC {100 * acc.mean:.1f}{spread}"
    if second is None:
        return f"{name} is the only method {found} ({acc.n} seed{'s' * (acc.n > 1)})"
    gap = f"{100 * (acc.mean - second.summary('acc').mean):.1f} points above {_named(second, rows)}"
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


def _forgetting(rows: Sequence[Row], first: Row) -> str:
    mine = first.summary("fm").mean
    if math.isnan(mine):
        return ""
    least = best_row(rows, "fm") or first
    said = f"; forgetting {100 * mine:.1f}"
    if least.summary("fm").mean == mine:
        return said + (", the least" if len(rows) > 1 else "")
    return f"{said}, where {_named(least, rows)} has the least, {100 * least.summary('fm').mean:.1f}"


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
