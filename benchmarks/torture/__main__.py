"""python -m benchmarks.torture [--only NAME ...] [--minutes N] [--seed S] [--jobs J] [--lean]."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.box import MARKDOWN
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.torture.runner import Row, torture
from benchmarks.torture.scene import Scene
from benchmarks.torture.table import FAULTS

NOTES = 10  # of each fault


def main(words: Sequence[str] | None = None) -> int:
    options = _options(words)
    names = [name for name in FAULTS if name in (options.only or FAULTS)]
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    end, rows = time.monotonic() + 60 * options.minutes, []
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
    with tempfile.TemporaryDirectory(prefix="tmln-torture-", ignore_cleanup_errors=True) as folder, bar:
        scene = Scene(Path(folder), options.seed)
        try:
            for number, name in enumerate(names):
                fault, now = FAULTS[name], time.monotonic()
                task = bar.add_task(fault.what, total=(fault.lean if options.lean else fault.full)[0])
                share = fault.share / sum(FAULTS[other].share for other in names[number:])
                until, advance = now + share * max(0.0, end - now), partial(bar.advance, task)
                rows.append(torture(name, fault, scene, options.lean, until, advance, options.jobs))
                bar.remove_task(task)
                _tell(console, rows[-1])
        except KeyboardInterrupt:
            console.print("interrupted; what follows is what was found so far")
    Console(highlight=False, soft_wrap=True).print(table(rows), width=110)
    return int(not rows or not all(row.verdict.sound for row in rows))


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torture", description="put faults in, see what is lost")
    parser.add_argument("--only", nargs="+", choices=FAULTS, metavar="NAME", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--minutes", type=float, default=15.0, help="at most about so many")
    parser.add_argument("--seed", type=int, default=0, help="other moments, bytes and strings")
    parser.add_argument("--jobs", type=int, help="trials at once; as many as there are cores unless given")
    parser.add_argument("--lean", action="store_true", help="the few that `make test` does")
    return parser.parse_args(words)


def _tell(console: Console, row: Row) -> None:
    found = row.verdict
    short = f", {row.done} of {row.planned} trials: time was up" if row.done < row.planned else ""
    console.print(
        f"{row.name}: {found.injected} injected, {found.lost} lost, {found.different} different, "
        f"{found.unclear} unclear{short} ({row.seconds:.0f} s)"
    )
    for note in found.notes[:NOTES]:
        console.print(f"  {note}", markup=False)
    if len(found.notes) > NOTES:
        console.print(f"  and {len(found.notes) - NOTES} more")


def table(rows: Sequence[Row]) -> Table:
    found = Table("fault", "injected", "lost", "different", "unclear errors", box=MARKDOWN)
    for row in rows:
        numbers = (row.verdict.injected, row.verdict.lost, row.verdict.different, row.verdict.unclear)
        short = f" ({row.done} of {row.planned} trials)" if row.done < row.planned else ""
        found.add_row(row.what + short, *(f"{number:,}" for number in numbers))
    return found


if __name__ == "__main__":
    sys.exit(main())
