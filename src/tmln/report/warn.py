"""What a reader must know before trusting the page, gathered so that each thing is said once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tmln.results.rows import Row
from tmln.results.tables import REFERENCE, rates


def warnings_of(
    rows: Sequence[Row], problems: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Each with ``text``, the ``benchmark`` it is of (empty: of all), and ``about``: the rows or runs concerned."""
    said: list[dict[str, Any]] = []
    corrupt = [f"{p['name']}: {p['reason']}" for p in problems if p["state"] == "corrupt"]
    unfinished = [str(p["name"]) for p in problems if p["state"] == "unfinished"]
    if corrupt:
        said.append(_warning("", "Runs that cannot be read are left out", corrupt))
    if unfinished:
        said.append(
            _warning("", "Runs that are not finished are left out; the command that began them goes on", unfinished)
        )
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        mine = [row for row in rows if row.benchmark == benchmark]
        said += _of_benchmark(benchmark, mine)
        said += _versions(benchmark, [r for r in results if r["benchmark"] == benchmark])
    return said


def _of_benchmark(benchmark: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    found = (
        ("Runs that diverged are left out of means", [_seeds(r.label, r.diverged) for r in rows if r.diverged]),
        ("Seeds that others have are missing", [_seeds(r.label, r.missing) for r in rows if r.missing]),
        ("One seed only: no spread, no interval, no test", [r.label for r in rows if r.summary("acc").n == 1]),
        *(
            (f"INT is against {REFERENCE[oracle]}", [r.label for r in rows if oracle in r.oracles])
            for oracle in ("final", "independent")
        ),
    )
    said = [_warning(benchmark, text, about) for text, about in found if about]
    said += [_warning(benchmark, text[0].upper() + text[1:], []) for text in rates(rows)]
    if not any(row.oracles for row in rows):
        said.append(_warning(benchmark, "INT is not there: no joint reference has run (tmln run --oracle prefix)", []))
    return said


def _versions(benchmark: str, results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    said = []
    for package in ("tmln", "torch"):
        given = [r["versions"] for r in results if isinstance(r.get("versions"), Mapping)]
        found = sorted({str(versions.get(package, "unknown")) for versions in given})
        if len(found) > 1:
            said.append(_warning(benchmark, f"Runs were made with several versions of {package}", found))
    return said


def _seeds(label: str, seeds: Sequence[int]) -> str:
    return f"{label}: seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _warning(benchmark: str, text: str, about: Sequence[str]) -> dict[str, Any]:
    return {"benchmark": benchmark, "text": text, "about": list(about)}
