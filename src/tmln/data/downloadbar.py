"""A progress bar for downloads, where somebody is watching."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tmln.data.download import Progress


@contextmanager
def download_bar(show: bool | None = None) -> Iterator[Progress]:
    """``with download_bar() as bar: get_data("cifar100", progress=bar)``; ``show`` forces it on or off."""
    if show is False or (show is None and not sys.stderr.isatty()):
        yield lambda name, done, total: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    tasks: dict[str, progress.TaskID] = {}
    with progress.Progress(*columns, console=Console(stderr=True)) as bars:

        def report(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done)

        yield report
