"""Write notes to tables, fronts and pages: what a reader must know to trust them.

A note is written once for all the rows or runs that it concerns; a terminal shows it as a line, the
page as a list.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tmln.analysis.comparability import has_own_order
from tmln.analysis.read import Problem
from tmln.analysis.rows import Row, group_by_table
from tmln.analysis.selection import find_unlearned, find_unselected
from tmln.analysis.significance import TESTS, Significance, find_identical
from tmln.experiments.result import REFERENCES, Result
from tmln.metrics import metric_of
from tmln.printable import one_line

NAMED = 10  # folders that are named of those passed over
REFERENCE = {  # each at the benchmark's own rate, whatever that of the row: see tmln.experiments.reference_runs
    "prefix": "joint training on tasks 1..k under the same seed at the benchmark's own lr",
    "final": "the shortcut oracle, one joint model of all tasks at the benchmark's own lr",
    "independent": "training afresh on task k alone under the same seed at the benchmark's own lr",
}
SEARCHED = "trials of a search are left out: the chosen settings ran with other seeds"
USUAL = f"INT is against {REFERENCE['prefix']}"
SEES = {"prefix": "sees all data at once", "independent": "sees each task alone"}
UNLEARNED = "†"
STRONG = "bold: the best and rows that do not differ significantly from it; none where no row does (joint aside)"
CAPTION = "Mean ± sample deviation over n seeds; bold: the best and rows that do not differ from it (Holm)."
CUT = "intervals end at 0 and 100 %, with the same coverage"
FRONT = (
    "a point is a configuration's mean over n seeds ± sample standard deviation; front: not dominated within its "
    "method (own) or by any method (all)"
)


@dataclass(frozen=True)
class Note:
    """A note; ``about`` names the rows, runs or seeds that it concerns, empty for all."""

    text: str
    about: tuple[str, ...] = ()
    table: str = ""  # of which it is; empty: of all

    def __str__(self) -> str:
        return ": ".join([self.text, *(["; ".join(self.about)] if self.about else [])])

    def plain(self) -> dict[str, Any]:
        """Return the note for the page."""
        return {"benchmark": self.table, "text": self.text[0].upper() + self.text[1:], "about": list(self.about)}


# -- of tables of rows --


def table_notes(rows: Sequence[Row]) -> list[str]:
    """Return the notes of a table: its columns, then problems of its rows."""
    notes = ["n seeds: mean ± sample standard deviation, 95% t-interval", STRONG]
    if any(row.summary("acc").cut for row in rows):
        notes.append(CUT)
    return [*notes, *map(str, row_notes(rows))]


def difference_notes(found: Significance) -> list[str]:
    """Return the notes of a table of differences: reference, test and correction."""
    if found.reference is None:
        return []
    pairs = len(found.nearest) if found.has_given_reference else math.comb(len(found.candidates), 2)
    chosen = "as requested" if found.has_given_reference else "the best of all pairs" if pairs else "the best"
    many = f"corrected by Holm for {pairs} comparison{'s' * (pairs != 1)}" if pairs else "without a conclusion"
    notes = [f"Δ: ACC against {found.reference.label}, {chosen}, on shared seeds; p: {TESTS[found.test].title}, {many}"]
    if not found.candidates:
        notes = [f"Δ and p are against {found.reference.label}, best on the test data: no conclusion follows"]
    return [*notes, "seeds needed: for 80% power of the t-test, if the difference is as estimated here"]


def row_notes(rows: Sequence[Row]) -> Iterator[Note]:
    """Yield notes on problems of one table's rows."""
    yield from _settings(rows)
    yield from _rates(rows)
    yield from _about(f"{UNLEARNED} has not learned, and so forgets little", _list_unlearned(rows))
    for group in find_identical(rows):
        yield Note("agree to the last digit and are indistinguishable", (", ".join(row.label for row in group),))
    if rows and all(has_own_order(result) for row in rows for result in row.results):
        yield Note("every seed has an order of its own in which classes arrive: intervals are over orders, too")
    yield from gap_notes(rows)


def gap_notes(rows: Sequence[Row]) -> Iterator[Note]:
    """Yield notes on missing and single seeds, and on the reference of INT."""
    yield from seed_notes(rows)
    yield from reference_notes(rows)


def seed_notes(rows: Sequence[Row]) -> Iterator[Note]:
    """Yield notes on seeds that are missing, diverged, or single."""
    yield from _about("runs that diverged are left out of means", (_seeds(r.label, r.diverged) for r in rows))
    yield from _about("seeds that others have are missing", (_seeds(r.label, r.missing) for r in rows))
    yield from _about("one seed only: no spread, no interval, no test", (_single(row) for row in rows), len(rows))


def reference_notes(rows: Sequence[Row]) -> Iterator[Note]:
    """Yield notes on the reference of INT."""
    kinds = {oracle for row in rows for oracle in row.oracles}
    for oracle in (name for name in REFERENCE if name in kinds):
        held = [row.label for row in rows if oracle in row.oracles]
        yield Note(f"INT is against {REFERENCE[oracle]}", tuple(held if len(kinds) > 1 else ()))
    if not kinds:
        yield Note("INT is not there: no joint reference has run (tmln run --int-reference prefix)")


def _settings(rows: Sequence[Row]) -> Iterator[Note]:
    """Yield notes on settings that differ from a method's own and that labels leave out."""
    shared = sorted({setting for row in rows for setting in row.shared})
    yield from _about("set alike in every row that has them", shared)
    yield from _about("settings that a search chose", (_list_chosen(row) for row in rows))


def _list_chosen(row: Row) -> str:
    return f"{row.label}: {', '.join(row.chosen)}" if row.chosen else ""


def _rates(rows: Sequence[Row]) -> Iterator[Note]:
    """Yield a note where rows with one lr have different effective learning rates."""
    groups: dict[float, list[str]] = {}
    for row in rows:
        if row.competes and not math.isnan(row.rate):
            groups.setdefault(row.rate, []).append(row.label)
    if len(groups) > 1:
        listed = tuple(f"{rate:.3g}: {', '.join(labels)}" for rate, labels in sorted(groups.items()))
        yield Note("rows start at different rates (with momentum), and may differ for that alone", listed)


def _about(text: str, found: Iterable[str], rows: int = 0) -> Iterator[Note]:
    about = tuple(one for one in found if one)
    if about:
        yield Note(text, ("every row",) if len(about) == rows > 1 else about)


def _list_unlearned(rows: Sequence[Row]) -> list[str]:
    return [f"{label} ({why})" for label, why in find_unlearned(rows).items()]


def _single(row: Row) -> str:
    return row.label if row.summary("acc").n == 1 else ""


def _seeds(label: str, seeds: Sequence[int]) -> str:
    return f"{label}: {seeds_text(seeds)}" if seeds else ""


def seeds_text(seeds: Sequence[int]) -> str:
    """Return ``seed 3`` or ``seeds 0, 1``."""
    return f"seed{'s' if len(seeds) != 1 else ''} {', '.join(map(str, seeds))}"


# -- of runs --


def page_notes(rows: Sequence[Row], problems: Sequence[Problem]) -> Iterator[Note]:
    """Yield the notes of a folder of runs for the page, table by table."""
    corrupt, unfinished = (tuple(_problems(problems, state)) for state in ("corrupt", "unfinished"))
    if searched := tuple(_problems(problems, "searched")):
        yield Note(SEARCHED, searched)
    if corrupt:
        yield Note("runs that cannot be read are left out", corrupt)
    if unfinished:
        yield Note("runs that are not finished are left out; the command that began them goes on", unfinished)
    for name, mine in group_by_table(rows).items():
        for note in (*row_notes(mine), *version_notes(result for row in mine for result in row.results)):
            if note.text != USUAL:
                yield Note(note.text, note.about, name)


def folder_notes(results: Sequence[Result], problems: Sequence[Problem]) -> Iterator[str]:
    """Yield notes on what a folder holds besides results, counted, with the first few names."""
    for state, what in (("unfinished", "left out, not finished"), ("corrupt", "passed over")):
        mine = [one_line(text) for text in _problems(problems, state)]
        if mine:
            more = [f"and {len(mine) - NAMED} more"] if len(mine) > NAMED else []
            folders = "1 folder was" if len(mine) == 1 else f"{len(mine)} folders were"
            yield f"{folders} {what}: {'; '.join([*mine[:NAMED], *more])}"
    if searched := tuple(map(one_line, _problems(problems, "searched"))):
        yield f"{Note(SEARCHED, searched)} (--with-trials shows them)"
    doubtful = sum(not result.checksum for result in results)
    if doubtful:
        yield f"{doubtful} of {len(results)} results have no checksum: an earlier version of tmln wrote them"


def version_notes(results: Iterable[Result]) -> Iterator[Note]:
    """Yield a note where runs were made with different versions of a package."""
    given = [result.versions for result in results if result.versions]
    for package in ("tmln", "torch"):
        found = Counter(str(versions.get(package, "unknown")) for versions in given)
        if len(found) > 1:
            counted = tuple(f"{version} ({count} run{'s' * (count > 1)})" for version, count in sorted(found.items()))
            yield Note(f"runs were made with several versions of {package}", counted)


def _problems(problems: Sequence[Problem], state: str) -> Iterator[str]:
    return (f"{p.name}: {p.reason}" if p.reason else p.name for p in problems if p.state == state)


# -- of fronts --


def front_notes(rows: Sequence[Row], lacking: Mapping[str, Sequence[str]], metrics: Sequence[str]) -> list[str]:
    """Yield the notes of fronts; ``lacking`` maps configurations to metrics they do not have."""
    requested = any(metric_of(name).against_reference for name in metrics)
    notes = [str(note) for note in (gap_notes(rows) if requested else seed_notes(rows))]
    if find_unselected(rows):
        notes.append("of a method with validation data the front of all has only the configuration chosen on them")
    aside = dict.fromkeys(row.method for row in rows if not row.competes)
    notes += [f"{name} {SEES[REFERENCES[name]]}: it is the reference, and on no front" for name in aside]
    alike = {tuple(missing) for missing in lacking.values()}
    if len(alike) == 1:
        lacking = {"every configuration": [*alike.pop()]}
    for label, missing in lacking.items():
        if missing:
            notes.append(f"{label}: no {' and no '.join(metric_of(m).heading for m in missing)}, so on no front")
    return notes
