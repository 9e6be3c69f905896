"""Downloads with pooch: verified by checksum, limited in size, complete or absent."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from tmln.data.dataset import RemoteFile
from tmln.data.reading import DataError
from tmln.writing import CannotWrite, write_all, writing

Progress: TypeAlias = Callable[[str, int, int], None]
"""A function of a file's name, the bytes received, and its total size in bytes."""

BLOCK = 1 << 18


def fetch(
    remote: RemoteFile, root: Path, progress: Progress | None = None, tries: int = 3, timeout: float = 30.0
) -> Path:
    """Return the path of a file below ``root``, downloaded unless a sound copy is there.

    The bytes go to a temporary file, which is renamed once its checksum is right. Each address is
    tried ``tries`` times; a file with another checksum is not fetched again.
    """
    target = root / remote.folder / remote.name
    if target.exists():
        verify(target, remote)
        return target
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    import pooch  # with requests it takes a tenth of a second

    pooch.get_logger().setLevel(logging.WARNING)

    def download(url: str, path: str, _: Any) -> None:
        headers = {"User-Agent": "tmln", "Accept-Encoding": "identity"}
        responses: list[Any] = []  # to be closed where a download is broken off
        hooks = {"response": lambda response, *_, **__: responses.append(response)}
        get = pooch.HTTPDownloader(chunk_size=BLOCK, timeout=timeout, headers=headers, hooks=hooks)
        try:
            with open(path, "wb", buffering=0) as file:
                get(url, _LimitedFile(file, target, remote, progress), None)
        finally:
            for response in responses:
                response.close()

    failure: Exception | None = None
    for url in remote.urls * tries:
        try:
            pooch.retrieve(url, f"md5:{remote.md5}", target.name, target.parent, downloader=download)
            return target
        except CannotWrite:  # trying again would change nothing
            raise
        except OSError as error:  # among them all errors of requests
            failure = error
        except ValueError as error:
            raise DataError(f"cannot fetch {remote.name}: {url}: {error}") from error
    raise DataError(f"cannot fetch {remote.name} ({failure}); try again, or {by_hand((remote,), root)}") from failure


class _LimitedFile:
    """A file for pooch to write to, which refuses more bytes than expected and reports progress."""

    def __init__(self, file: Any, target: Path, remote: RemoteFile, progress: Progress | None) -> None:
        self.file, self.target, self.remote, self.progress = file, target, remote, progress
        self.size = 0

    def write(self, block: bytes) -> None:
        self.size += len(block)
        if self.size > self.remote.size:
            raise OSError(f"the server sends more than the expected {self.remote.size:,} bytes")
        with writing(self.target):
            write_all(self.file, block)
        if self.progress is not None:
            self.progress(self.remote.name, self.size, self.remote.size)

    def flush(self) -> None:
        """Do nothing: the file is not buffered."""


def verify(path: Path, remote: RemoteFile) -> None:
    """Raise unless the file has the size and the checksum of the official one."""
    import pooch

    if path.stat().st_size != remote.size:
        raise DataError(f"{path}: {path.stat().st_size:,} bytes, not {remote.size:,}: delete it and fetch it again")
    if (found := pooch.file_hash(str(path), alg="md5")) != remote.md5:
        raise DataError(f"{path}: MD5 {found}, not {remote.md5}: delete it and fetch it again")


def by_hand(files: tuple[RemoteFile, ...], root: Path) -> str:
    """Return instructions for placing these files without a network connection."""
    lines = [
        f"{file.urls[0]} as {root / file.folder / file.name} ({file.size:,} bytes, MD5 {file.md5})" for file in files
    ]
    return f"place by hand {'; '.join(lines)}"


@contextmanager
def download_bar(show: bool | None = None) -> Iterator[Progress]:
    """Show a progress bar for ``get_data("cifar100", progress=bar)``, where ``bar`` is its value.

    ``show`` forces it on or off; by default it is shown on a terminal.
    """
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
