"""Write the summary of a table: which method leads, significance, and cost of a run.

"leads" is written only where the best differs significantly from every other candidate
(:mod:`tmln.analysis.significance`); otherwise it names the methods that do not differ
significantly. Fewer than three shared seeds claim nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tmln.analysis.rows import AT_RATE, Row
from tmln.analysis.selection import Selection, find_unlearned, select_configurations
from tmln.analysis.significance import FEWEST, PairwiseTest, Significance, TestName, assess_significance, find_identical

NAMED = 4  # methods that are named of a group; the others are counted
ROOM = 42  # characters for the names of a group, and
PLACE = 32  # of a table, in a headline: three lines of a phone


def write_summary(rows: Sequence[Row], test: TestName = "t") -> str:
    """Write the summary of one table's rows, one per method.

    ``joint``, which sees all data at once, does not compete, nor do rows chosen on the test data,
    which are named at the end.
    """
    if not rows:
        return "Nothing has finished yet."
    where = rows[0].title
    found = select_configurations(rows)
    if not found:
        return f"No method has an accuracy on {where} yet."
    names = {choice.row.label: choice.name for choice in found}
    aside = ", ".join(_aside(choice) for choice in found if not choice.fair)
    fair = [choice.row for choice in found if choice.fair]
    unlearned = {label: why for label, why in find_unlearned(rows).items() if label in {row.label for row in fair}}
    if not fair:
        return (
            f"No method on {where} was chosen without its test data: {aside}. benchmark.validation=0.1 is to choose by."
        )
    able = [row for row in fair if row.label not in unlearned]
    if not able:
        return f"No method on {where} has learned: {_because(names, unlearned)}."
    tested = assess_significance(rows, "acc", test)
    first = tested.reference
    assert first is not None
    parts = [_lead(names, tested, where), *_forgetting(names, assess_significance(rows, "fm", test), first)]
    parts += [*_price(tested), *_controls(rows), *_alike(names, fair)]
    parts += [f"not learned: {_because(names, unlearned)}"] if unlearned else []
    parts += [f"left out: {aside}"] if aside else []
    return "; ".join(parts) + "."


def write_headline(rows: Sequence[Row]) -> str:
    """Write the claim alone, short enough for a phone.

    It says "leads" where :func:`write_summary` does, and nowhere else.
    """
    if not rows:
        return "Nothing has finished yet."
    where, found = _cut(rows[0].title, PLACE), select_configurations(rows)
    if not found:
        return f"No method has an accuracy on {where} yet."
    if not any(choice.fair for choice in found):
        return f"No method on {where} was chosen without its test data."
    tested = assess_significance(rows, "acc", "t")
    first, nearest = tested.reference, tested.nearest
    if first is None or not tested.candidates:
        return f"No method on {where} has learned."
    name = _cut(first.contender, ROOM // 2)
    if not nearest:
        return f"{name} is the only method on {where}: ACC {_acc(first)} ({_seeds([first.summary('acc').n])})."
    counts = [pair.plain.n for pair in nearest]
    if max(counts) < FEWEST:
        return f"On {where} {_claim(counts)} nothing; {name} has the highest ACC, {_acc(first)}."
    if tested.has_winner:
        return f"{name} leads on {where} with {_seeds(counts)}: ACC {_acc(first)}."
    tied = [name, *(_cut(pair.row.contender, ROOM // 2) for pair in nearest if not pair.is_significant)]
    fits = [named for named in range(1, NAMED + 1) if len(_join_names(tied, named)) <= ROOM]
    return f"On {where} {_join_names(tied, max(fits, default=1))} do not differ significantly ({_seeds(counts)})."


def p_text(p: float) -> str:
    """Return ``= 0.012`` or ``< 0.001``."""
    return f"= {p:.3f}" if p >= 0.001 else "< 0.001"


def _aside(choice: Selection) -> str:
    return f"{choice.name} with ACC {100 * choice.row.summary('acc').mean:.1f}"


def _because(names: Mapping[str, str], unlearned: Mapping[str, str]) -> str:
    return ", ".join(f"{names[label]} ({why})" for label, why in unlearned.items())


def _lead(names: Mapping[str, str], tested: Significance, where: str) -> str:
    first, nearest = tested.reference, tested.nearest
    assert first is not None
    acc, name = _acc(first), names[first.label]
    if not nearest:
        return f"{name} is the only method on {where}: ACC {acc} ({_seeds([first.summary('acc').n])})"
    counts = [pair.plain.n for pair in nearest]
    seeds = _seeds(counts)
    if max(counts) < FEWEST:
        return (
            f"On {where} {_claim(counts)} nothing: {name} has the highest ACC, {acc}, "
            f"{_gap(names, first, nearest[0])}; {FEWEST} shared seeds are the fewest for a claim"
        )
    if tested.has_winner:
        others = f" over {len(nearest)} others" if len(nearest) > 1 else ""
        sure = f"{_gap(names, first, nearest[0])} {_sure(nearest[0])}"
        return f"{name} leads on {where}{others} with {seeds}: ACC {acc}, {sure}"
    tied = [pair for pair in nearest if not pair.is_significant]
    beaten = [names[pair.row.label] for pair in nearest if pair.is_significant]
    group = _join_names([name, *(names[pair.row.label] for pair in tied)])
    found = f"On {where} {group} do not differ significantly ({seeds}): ACC {acc} of {name} is highest, "
    found += f"{_gap(names, first, tied[0])} {_sure(tied[0])}"
    found += f", 80% power needs about {tied[0].needed} seeds" if tied[0].needed else ""
    return found + (f"; {name} is above {_join_names(beaten)}" if beaten else "")


def _claim(counts: Sequence[int]) -> str:
    return f"{_seeds(counts)} claim{'s' * (max(counts) == 1)}" if max(counts) else "no shared seeds claim"


def _gap(names: Mapping[str, str], first: Row, near: PairwiseTest) -> str:
    apart = 100 * (first.summary("acc").mean - near.row.summary("acc").mean)
    return f"{apart:.1f} points above {names[near.row.label]}"


def _acc(row: Row) -> str:
    found = row.summary("acc")
    return f"{100 * found.mean:.1f}" + (f" ± {100 * found.std:.1f}" if found.n > 1 else "")


def _sure(pair: PairwiseTest) -> str:
    """Return ``[5.0, 15.0], corrected p = 0.013`` of the reference over another row."""
    if math.isnan(pair.corrected):
        return "by the same on every seed, where no test applies" if pair.plain.n > 1 else "with too few shared seeds"
    low, high = sorted((-100 * pair.high, -100 * pair.low))
    return f"[{low:.1f}, {high:.1f}], corrected p {p_text(pair.corrected)}"


def _seeds(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low} seed{'s' * (low != 1)}" if low == high else f"{low} to {high} seeds"


def _cut(name: str, room: int) -> str:
    return name if len(name) <= room else f"{name[: room - 1]}…"


def _join_names(names: Sequence[str], named: int = NAMED) -> str:
    shown = [*names[:named], *([f"{len(names) - named} more"] if len(names) > named else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _forgetting(names: Mapping[str, str], found: Significance, first: Row) -> list[str]:
    """Return FM with its peak; "the least" only where it is significant."""
    if math.isnan(first.summary("fm").mean):
        return []
    least, sure = found.reference or first, ", which is confirmed" if found.has_winner else ", not confirmed"
    if least is first:
        return [f"forgetting {_fm(first)}" + (", the least" if found.has_winner else "")]
    return [f"forgetting {_fm(first)}, the lowest being {names[least.label]}'s {_fm(least)}{sure}"]


def _fm(row: Row) -> str:
    peak = row.summary("peak").mean
    return f"{100 * row.summary('fm').mean:.1f}" + ("" if math.isnan(peak) else f" from a peak of {100 * peak:.1f}")


def _controls(rows: Sequence[Row]) -> list[str]:
    """Return the rows at the effective learning rate of the one that starts at eta/lambda."""
    found = [f"{row.label.removesuffix(AT_RATE)} {_acc(row)}" for row in rows if row.label.endswith(AT_RATE)]
    return [f"at the rate eta/lambda: ACC of {_join_names(found)}"] if found else []


def _alike(names: Mapping[str, str], rows: Sequence[Row]) -> list[str]:
    return [
        f"{_join_names([names[row.label] for row in group])} agree to the last digit and are indistinguishable"
        for group in find_identical(rows)
    ]


def _price(tested: Significance) -> list[str]:
    first, second = tested.reference, next((pair.row for pair in tested.nearest), None)
    assert first is not None
    mine = first.summary("seconds").mean
    if math.isnan(mine):
        return []
    other = math.nan if second is None else second.summary("seconds").mean
    than = "" if second is None or math.isnan(other) else f" ({second.contender} {duration(other)})"
    return [f"{duration(mine)} a run{than}"]


def duration(seconds: float) -> str:
    """Write a time in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
