"""python -m benchmarks.mutants [--sample N | all] [--seed S] [--jobs J] [--results FILE] [--room NAME ...] [--list]."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

from rich.console import Console
from rich.table import Table

from benchmarks.mutants import judge
from benchmarks.mutants.operators import Mutant
from benchmarks.mutants.sample import all_mutants, draw, name_of, read_equivalent
from benchmarks.mutants.targets import ROOMS, judges, sources

TREE = Path(__file__).resolve().parents[2]
EQUIVALENT = "equivalent"
console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    options = _options()
    rooms = {room: found for room, found in all_mutants(TREE).items() if room in options.room}
    equivalent = read_equivalent()
    known = {name_of(mutant) for found in all_mutants(TREE).values() for mutant in found}
    for name in equivalent.keys() - known:
        console.print(f"equivalent.yaml: no such mutant any more: {' | '.join(name)}", markup=False)
    drawn = draw(rooms, None if options.sample == "all" else int(options.sample), options.seed)
    if options.list:
        for _, mutant in drawn:
            _show(mutant, "")
        return 0
    verdicts = {m.key: EQUIVALENT for _, m in drawn if name_of(m) in equivalent}
    digest = _digest(rooms)
    verdicts |= _earlier(options.results, digest, {m.key for _, m in drawn})
    todo = [(room, mutant) for room, mutant in drawn if mutant.key not in verdicts]
    try:
        with _copies(options.jobs) as copies:
            for room, mutant, verdict in _judged(todo, copies):
                verdicts[mutant.key] = verdict
                if options.results:
                    with options.results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({"tree": digest, "key": mutant.key, "verdict": verdict}) + "\n")
                done = f"{len(verdicts)}/{len(drawn)}"
                console.print(f"{done} {verdict} {room} {mutant.file}:{mutant.line}", markup=False)
    except KeyboardInterrupt:
        console.print("interrupted; these are the verdicts so far")
    for _, mutant in drawn:
        if verdicts.get(mutant.key) == judge.SURVIVED:
            _show(mutant, "survived: ")
    console.print(_table(drawn, verdicts))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description="put faults in, see who notices")
    parser.add_argument("--sample", default="300", help="how many mutants, one of each room in turn; or 'all'")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--results", type=Path, help="verdicts are appended here, and those of this tree are taken up")
    parser.add_argument("--room", nargs="+", default=[*ROOMS, "metrics", "store"], help="these rooms only")
    parser.add_argument("--list", action="store_true", help="show the mutants, judge none")
    return parser.parse_args()


@contextmanager
def _copies(jobs: int) -> Iterator[list[Path]]:
    folder = Path(tempfile.mkdtemp(prefix="tmln-mutants-"))
    try:
        yield [judge.copy_tree(TREE, folder / str(job)) for job in range(jobs)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _judged(todo: list[tuple[str, Mutant]], copies: list[Path]) -> Iterator[tuple[str, Mutant, str]]:
    """Verdicts as they come, as many at once as there are copies."""
    judge.warm_up()
    needed = {(room, mutant.file): judges(TREE, room, mutant.file) for room, mutant in todo}
    costs = {test: _cost(copies, test) for test in sorted({test for tests in needed.values() for test in tests})}
    for copy in copies[1:]:  # what the first runs compiled
        shutil.rmtree(copy)
        judge.copy_tree(copies[0], copy)
    stamp = int(time.time()) + 10
    waiting, running = list(reversed(todo)), dict[Path, tuple[judge.Trial, str, Mutant]]()
    try:
        while waiting or running:
            for copy in copies:
                if copy not in running and waiting:
                    room, mutant = waiting.pop()
                    tests = needed[room, mutant.file]
                    usual = judge.Cost(sum(costs[t].cpu for t in tests), sum(costs[t].wall for t in tests))
                    stamp += 10
                    judge.put(copy, mutant, (TREE / mutant.file).read_text(encoding="utf-8"), stamp)
                    running[copy] = judge.start(copy, tests, usual), room, mutant
            for copy, (trial, room, mutant) in list(running.items()):
                verdict = trial.verdict()
                if verdict is not None:
                    del running[copy]
                    shutil.copy2(TREE / mutant.file, copy / mutant.file)
                    yield room, mutant, verdict
            time.sleep(0.02)
    finally:
        for trial, _, _ in running.values():
            trial.stop()


def copies_source(mutant: Mutant) -> Path:
    return TREE / mutant.file


def _cost(copies: list[Path], test: str) -> judge.Cost:
    """What a test file takes on the unmutated tree, where it has to pass."""
    trial = judge.start(copies[0], [test], None)
    while (verdict := trial.verdict()) is None:
        time.sleep(0.02)
    if verdict != judge.SURVIVED:
        log = (copies[0] / "tests.log").read_text(errors="replace")[-3000:]
        raise SystemExit(f"{test} fails on the unmutated tree, so it cannot judge mutants:\n{log}")
    console.print(f"{test}: {trial.cost.cpu:.1f} s of processor time unmutated", markup=False)
    return trial.cost


def _digest(rooms: dict[str, list[Mutant]]) -> str:
    """Verdicts hold for these sources and tests only."""
    found = hashlib.sha256()
    for path in sorted([*(TREE / "src").rglob("*.py"), *(TREE / "tests").rglob("*.py")]):
        found.update(path.relative_to(TREE).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def _earlier(results: Path | None, digest: str, wanted: set[str]) -> dict[str, str]:
    if results is None or not results.exists():
        return {}
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return {row["key"]: row["verdict"] for row in rows if row["tree"] == digest and row["key"] in wanted}


def _show(mutant: Mutant, verdict: str) -> None:
    console.print(
        f"{verdict}{mutant.file}:{mutant.line} {mutant.function}\n-   {mutant.before}\n+   {mutant.after}", markup=False
    )


def _table(drawn: list[tuple[str, Mutant]], verdicts: dict[str, str]) -> Table:
    """Killed includes endless loops; the share is that of mutants that can be noticed."""
    table = Table("room", "mutants", "judged", "killed", "of these endless", "survived", "equivalent", "share killed")
    rooms = list(dict.fromkeys(room for room, _ in drawn))
    for room in [*rooms, "all"]:
        keys = [mutant.key for r, mutant in drawn if room in (r, "all")]
        count = Counter(verdicts[key] for key in keys if key in verdicts)
        killed = count[judge.KILLED] + count[judge.ENDLESS]
        real = killed + count[judge.SURVIVED]
        numbers = [len(keys), count.total(), killed, count[judge.ENDLESS], count[judge.SURVIVED], count[EQUIVALENT]]
        table.add_row(room, *map(str, numbers), f"{killed / real:.1%}" if real else "")
    return table


if __name__ == "__main__":
    sys.exit(main())
