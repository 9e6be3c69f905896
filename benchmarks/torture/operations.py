"""Watch every operation of a child that changes files under a folder, before it happens: to count, kill or refuse.

Python's audit hooks see them all: whatever state a kill between two operations can leave is the state before one of
them. What is inside one write is reached by a limit on the size of files, which ends a write at any byte.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PATHS = {  # which arguments of an audited event are the path that changes and the folder that it is relative to
    "open": (0, None),
    "os.rename": (1, 3),
    "os.link": (1, 3),
    "os.remove": (0, 1),
    "os.mkdir": (0, 2),
    "os.rmdir": (0, 1),
    "os.truncate": (0, None),
    "os.chmod": (0, 2),
    "os.utime": (0, 3),
}
MAKING = ("open", "os.mkdir", "os.link")  # those that need room on the disk


@dataclass(frozen=True)
class Operation:
    """``open`` for writing, ``os.rename`` and so on; the path is that which appears, changes or goes."""

    kind: str
    path: str

    @property
    def file(self) -> str:
        """The name of the file that this is about, whatever it is called while it is written."""
        return re.sub(r"^\.(.*)\.writing-\d+$", r"\1", Path(self.path).name)


def look(root: Path, on: Callable[[Operation], None]) -> None:
    """Watch from now on, for the rest of this process."""
    within, busy = str(root), threading.local()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        place = PATHS.get(event)
        if place is None or threading.current_thread() is not threading.main_thread() or getattr(busy, "now", False):
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITING):
            return
        busy.now = True
        try:
            path = _path(arguments[place[0]], None if place[1] is None else arguments[place[1]])
            if path.startswith(within):
                on(Operation(event, path))
        finally:
            busy.now = False

    sys.addaudithook(hook)


def _path(value: Any, folder: Any) -> str:
    if isinstance(value, int):
        return ""
    path = os.fsdecode(value)
    if isinstance(folder, int) and folder >= 0 and not os.path.isabs(path):
        return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
    return os.path.abspath(path)


def kill_before(root: Path, number: int) -> None:
    """Die before this operation, counted from 0."""
    left = number

    def on(operation: Operation) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    look(root, on)


def refuse_from(root: Path, number: int, error: int, tell: Callable[[Any], None]) -> None:
    """Refuse from this operation on: read-only (EROFS), or full (ENOSPC) for what needs room.

    The first refusal is told, but for those of an old checkpoint's removal, which may fail without a word.
    """
    seen, told = 0, False

    def on(operation: Operation) -> None:
        nonlocal seen, told
        seen += 1
        if seen > number and (error == errno.EROFS or operation.kind in MAKING):
            removes = operation.kind in ("os.remove", "os.rmdir")
            if not told and not (removes and "/.old-" in operation.path):
                tell(operation)
                told = True
            raise OSError(error, os.strerror(error), operation.path)

    look(root, on)


@dataclass(frozen=True)
class Place:
    """Inside a write: of which file, of those of this name the how-manieth that is opened, after how many bytes."""

    file: str
    time: int
    share: float  # of the bytes that the file has when it is whole
    size: int

    @property
    def at(self) -> int:
        return min(int(self.share * self.size), self.size - 1)


def full_at(root: Path, place: Place, deadly: bool, tell: Callable[[Any], None]) -> None:
    """Let no file grow past that byte from then on. ``deadly``: a process that tries dies in the write."""
    left = place.time

    def on(operation: Operation) -> None:
        nonlocal left
        if operation.kind != "open" or operation.file != place.file:
            return
        left -= 1
        if left < 0:
            there = os.stat(operation.path).st_size if os.path.exists(operation.path) else 0
            tell(operation)
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (there + place.at, hard))
            left = 1 << 60

    if deadly:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    look(root, on)
