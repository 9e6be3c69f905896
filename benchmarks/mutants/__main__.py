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

from benchmarks.mutants.judge import ENDLESS, KILLED, SURVIVED, judged
from benchmarks.mutants.operators import Mutant
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
    verdicts = _earlier(options.results, digest)
    verdicts = {mutant.key: verdicts[mutant.key] for _, mutant in drawn if mutant.key in verdicts}
    verdicts |= {mutant.key: "equivalent" for _, mutant in drawn if name_of(mutant) in equivalent}
    todo = [(package, mutant) for package, mutant in drawn if mutant.key not in verdicts]
    for asked in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asked, signal.default_int_handler)  # also where a shell had it ignored
    try:
        for package, mutant, verdict in judged(options.tree, todo, options.jobs, _say):
            verdicts[mutant.key] = verdict
            if options.results:
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"tree": digest, "key": mutant.key, "verdict": verdict}) + "\n")
            _say(f"{len(verdicts)}/{len(drawn)} {verdict}: {package}, {mutant.file}:{mutant.line}")
    except KeyboardInterrupt:
        _say("interrupted; what follows are the verdicts so far")
    for _, mutant in drawn:
        if verdicts.get(mutant.key) == SURVIVED:
            _show(mutant, "survived: ")
    console.print(_table(drawn, verdicts), width=100)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description="put faults in, see who notices")
    parser.add_argument("--sample", default="300", help="how many mutants, one of each package in turn; or 'all'")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--results", type=Path, help="verdicts are appended here, and those of this tree are taken up")
    parser.add_argument("--package", nargs="+", help="these packages only")
    parser.add_argument("--list", action="store_true", help="show the mutants, judge none")
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[2], help="what is mutated")
    parser.add_argument("--equivalent", type=Path, default=EQUIVALENT, help="the list of mutants nobody can notice")
    return parser.parse_args()


def _digest(tree: Path) -> str:
    """Verdicts hold for these sources and tests only."""
    found = hashlib.sha256()
    for path in sorted([*(tree / "src").rglob("*.py"), *(tree / "tests").rglob("*.py")]):
        found.update(path.relative_to(tree).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def _earlier(results: Path | None, digest: str) -> dict[str, str]:
    if results is None or not results.exists():
        return {}
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return {row["key"]: row["verdict"] for row in rows if row["tree"] == digest}


def _say(text: str) -> None:
    console.print(text, markup=False)


def _show(mutant: Mutant, verdict: str) -> None:
    _say(f"{verdict}{mutant.file}:{mutant.line} {mutant.function}\n-   {mutant.before}\n+   {mutant.after}")


def _table(drawn: list[tuple[str, Mutant]], verdicts: dict[str, str]) -> Table:
    """Killed includes the endless ones; the share is that of mutants that can be noticed at all."""
    names = ("package", "mutants", "judged", "killed", "endless", "survived", "equivalent", "share")
    table = Table(*names, box=MARKDOWN)
    for package in [*dict.fromkeys(package for package, _ in drawn), "all"]:
        keys = [mutant.key for its, mutant in drawn if package in (its, "all")]
        count = Counter(verdicts[key] for key in keys if key in verdicts)
        killed, survived = count[KILLED] + count[ENDLESS], count[SURVIVED]
        share = f"{killed / (killed + survived):.1%}" if killed + survived else ""
        numbers = [len(keys), sum(count.values()), killed, count[ENDLESS], survived, count["equivalent"]]
        table.add_row(package, *map(str, numbers), share)
    return table


if __name__ == "__main__":
    sys.exit(main())
