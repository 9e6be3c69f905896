"""Downloads that resume, are verified by size and checksum, and look complete only when they are; with a bar."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from tmln.data.bad_data import DataError
from tmln.data.dataset import RemoteFile
from tmln.writing import CannotWrite, write_all, writing

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are there, and the bytes it will have."""

BLOCK = 1 << 18


def fetch(
    remote: RemoteFile, root: Path, progress: Progress | None = None, tries: int = 3, timeout: float = 30.0
) -> Path:
    """The file in its place below ``root``: as it is if sound, else downloaded from where it stopped.

    Bytes go to NAME.part, which gets its name only after size and checksum are right.
    """
    target = root / remote.folder / remote.name
    if target.exists():
        verify(target, remote)
        return target
    part = target.with_name(f"{target.name}.part")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    for attempt in range(tries * len(remote.urls)):
        url = remote.urls[attempt % len(remote.urls)]
        try:
            _continue(url, part, remote, progress, timeout)
        except CannotWrite:  # trying again would change nothing
            raise
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            failures.append(f"{url}: {getattr(error, 'reason', None) or error}")
        if _length(part) == remote.size:
            break
    if _length(part) != remote.size:
        reason = failures[-1] if failures else "the connection ended early"
        raise DataError(
            f"cannot fetch {remote.name} ({reason}); try again to go on at byte {_length(part):,}, "
            f"or {by_hand((remote,), root)}"
        )
    try:
        verify(part, remote)
    except DataError:
        part.unlink()
        raise
    os.replace(part, target)
    return target


def verify(path: Path, remote: RemoteFile) -> None:
    """Raise unless the file has the size and the checksum of the official one."""
    if path.stat().st_size != remote.size:
        raise DataError(f"{path}: {path.stat().st_size:,} bytes, not {remote.size:,}: delete it and fetch it again")
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    if digest.hexdigest() != remote.md5:
        raise DataError(f"{path}: MD5 {digest.hexdigest()}, not {remote.md5}: delete it and fetch it again")


def by_hand(files: tuple[RemoteFile, ...], root: Path) -> str:
    """What to put where, for a machine without a network."""
    lines = [
        f"\n  {file.urls[0]}\n    as {root / file.folder / file.name} ({file.size:,} bytes, MD5 {file.md5})"
        for file in files
    ]
    return f"put by hand:{''.join(lines)}"


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _continue(url: str, part: Path, remote: RemoteFile, progress: Progress | None, timeout: float) -> None:
    """Append to ``part`` what is missing; start again where the server cannot go on."""
    have = _length(part)
    if have > remote.size:
        part.unlink()
        have = 0
    request = urllib.request.Request(url, headers={"User-Agent": "tmln", "Range": f"bytes={have}-"})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        have = have if resumed else 0
        with writing(part):
            file = open(part, "ab" if resumed else "wb", buffering=0)  # noqa: SIM115
        with file:
            while block := answer.read(BLOCK):
                have += len(block)
                if have > remote.size:
                    raise OSError(f"more than the {remote.size:,} bytes expected")
                with writing(part):
                    write_all(file, block)
                if progress is not None:
                    progress(remote.name, have, remote.size)


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
