"""A progress bar for long work on a terminal, and lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")
PAUSE = 15.0  # seconds between lines where there is no terminal
PATIENCE = 2.0  # seconds before a bar appears


def track(items: Iterable[T], what: str, show: bool | None = None, total: int | None = None) -> Iterator[T]:
    """Yield the items, with a bar after two seconds on a terminal; ``show`` forces it on or off.

    ``total``: how many items there are, where they do not know it.
    """
    total = len(items) if isinstance(items, Sized) else total
    if show is False or (show is None and not sys.stderr.isatty()):
        yield from _report_lines(items, what, total) if show is None else items
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=total)
    begin, started = time.monotonic(), False
    try:
        for item in items:
            yield item
            bar.advance(task)
            if not started and (show or time.monotonic() - begin > PATIENCE):
                bar.start()
                started = True
    finally:
        if started:
            bar.stop()


def _report_lines(items: Iterable[T], what: str, count: int | None) -> Iterator[T]:
    """Yield the items, with a line every fifteen seconds."""
    total = "" if count is None else f" of {count:,}"
    printed_at = time.monotonic()
    for number, item in enumerate(items):
        yield item
        if time.monotonic() - printed_at > PAUSE:
            printed_at = time.monotonic()
            print(f"{what}: {number + 1:,}{total}", file=sys.stderr, flush=True)
