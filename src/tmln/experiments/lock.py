"""Lock a run so that one process at a time works on it.

The lock is one of the operating system, which ends with its process.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from tmln.experiments.files import read_regular, write_whole
from tmln.experiments.shared_disk import check
from tmln.writing import writing


class RunLocked(RuntimeError):
    """Another process works on this run."""


class LockLost(RuntimeError):
    """This process does not hold the lock of the run that it writes to."""


class RunLock:
    """Hold a run: ``with RunLock(folder):``, or :class:`RunLocked` if another process has it.

    The operating system releases the lock when the process ends, however it ends. A process that is
    stopped keeps it. ``folder`` holds two files: ``held`` is locked, ``owner`` says by whom, in
    words.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._owner, self._mine = self.folder / "owner", b""
        self._lock = FileLock(self.folder / "held", blocking=False, thread_local=False, fallback_to_soft=False)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock, in this process: a forked child does not."""
        return self._lock.is_locked

    def acquire(self) -> None:
        """Take the lock, or raise :class:`RunLocked` at once."""
        if self.held:
            raise RuntimeError(f"lock {self.folder} is held by this object already")
        with writing(self.folder.parent):  # the run, which is what the user knows of
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire()
            except Timeout:
                raise RunLocked(
                    f"run {self.folder.parent} is being worked on by {self._read_owner()}; stop it, or let it finish"
                ) from None
            except OSError:
                check(self.folder)  # says what its file system lacks
                raise
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            owner = f"process {os.getpid()} on {socket.gethostname()} since {since}"
            self._mine = f"{owner}\n{uuid.uuid4().hex}\n".encode()
            try:
                write_whole(self._owner, self._mine)
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        """Release the lock; twice is no error."""
        with suppress(OSError):  # whoever works on the run has been told already; the lock ends with this process
            self._lock.release()

    def check(self) -> None:
        """Raise :class:`LockLost` unless this process holds the run.

        Called before results are written.
        """
        with suppress(FileNotFoundError):
            if self.held and read_regular(self._owner) == self._mine:
                return
        raise LockLost(
            f"run {self.folder.parent} is not held by this process: its lock was not taken, or its folder was removed "
            "and another process took over; leave the run to that one"
        )

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _read_owner(self) -> str:
        with suppress(OSError, ValueError):
            if lines := read_regular(self._owner).decode(errors="replace").splitlines():
                return lines[0]
        return "another process"
