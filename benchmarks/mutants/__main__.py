"""python -m benchmarks.mutants [--sample N | all] [--seed S] [--jobs J] [--results FILE] [--package P ...] [--list]."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from benchmarks.mutants.operators import Mutant
from benchmarks.mutants.runner import KILLED, SURVIVED, TIMEOUT, run_mutants
from benchmarks.mutants.sample import EQUIVALENT, all_mutants, draw, name_of, read_equivalent

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    options = _options()
    found = all_mutants(options.tree)
    equivalent = read_equivalent(options.equivalent)
    for name in equivalent.keys() - {name_of(mutant) for mutants in found.values() for mutant in mutants}:
        console.print(f"{options.equivalent.name}: no such mutant any more: {' | '.join(name)}", markup=False)
    packages = {package: mutants for package, mutants in found.items() if package in (options.package or found)}
    drawn = draw(packages, None if options.sample == "all" else int(options.sample), options.seed)
    if options.list:
        for _, mutant in drawn:
            _show(mutant, "")
        return 0
    digest = _digest(options.tree)
    statuses = _earlier(options.results, digest)
    statuses = {mutant.key: statuses[mutant.key] for _, mutant in drawn if mutant.key in statuses}
    statuses |= {mutant.key: "equivalent" for _, mutant in drawn if name_of(mutant) in equivalent}
    todo = [(package, mutant) for package, mutant in drawn if mutant.key not in statuses]
    for asked in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asked, signal.default_int_handler)  # also where a shell had it ignored
    try:
        for package, mutant, status in run_mutants(options.tree, todo, options.jobs, _say):
            statuses[mutant.key] = status
            if options.results:
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"tree": digest, "key": mutant.key, "status": status}) + "\n")
            _say(f"{len(statuses)}/{len(drawn)} {status}: {package}, {mutant.file}:{mutant.line}")
    except KeyboardInterrupt:
        _say("interrupted; these are the statuses so far")
    for _, mutant in drawn:
        if statuses.get(mutant.key) == SURVIVED:
            _show(mutant, "survived: ")
    console.print(_table(drawn, statuses), width=100)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutants", description="mutate the source, and count mutants that no test detects"
    )
    parser.add_argument("--sample", default="300", help="how many mutants, one of each package in turn; or 'all'")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--results", type=Path, help="file of statuses; those of this tree are used again")
    parser.add_argument("--package", nargs="+", help="these packages only")
    parser.add_argument("--list", action="store_true", help="show the mutants without testing them")
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[2], help="what is mutated")
    parser.add_argument(
        "--equivalent", type=Path, default=EQUIVALENT, help="the list of mutants that no test can detect"
    )
    return parser.parse_args()


def _digest(tree: Path) -> str:
    """Return a hash of sources and tests: statuses are valid for these only."""
    found = hashlib.sha256()
    for path in sorted([*(tree / "src").rglob("*.py"), *(tree / "tests").rglob("*.py")]):
        found.update(path.relative_to(tree).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def _earlier(results: Path | None, digest: str) -> dict[str, str]:
    if results is None or not results.exists():
        return {}
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return {row["key"]: row["status"] for row in rows if row["tree"] == digest}


def _say(text: str) -> None:
    console.print(text, markup=False)


def _show(mutant: Mutant, status: str) -> None:
    _say(f"{status}{mutant.file}:{mutant.line} {mutant.function}\n-   {mutant.before}\n+   {mutant.after}")


def _table(drawn: list[tuple[str, Mutant]], statuses: dict[str, str]) -> Table:
    """Tabulate statuses; killed includes timeouts, and the share leaves out equivalent mutants."""
    names = ("package", "mutants", "tested", "killed", "timeout", "survived", "equivalent", "share")
    table = Table(*names, box=MARKDOWN)
    for package in [*dict.fromkeys(package for package, _ in drawn), "all"]:
        keys = [mutant.key for its, mutant in drawn if package in (its, "all")]
        count = Counter(statuses[key] for key in keys if key in statuses)
        killed, survived = count[KILLED] + count[TIMEOUT], count[SURVIVED]
        share = f"{killed / (killed + survived):.1%}" if killed + survived else ""
        numbers = [len(keys), sum(count.values()), killed, count[TIMEOUT], survived, count["equivalent"]]
        table.add_row(package, *map(str, numbers), share)
    return table


if __name__ == "__main__":
    sys.exit(main())
