"""Lock a run so that one process at a time works on it.

The lock is one of the operating system, which ends with its process. A file system that cannot hold
runs is named.
"""

from __future__ import annotations

import errno
import os
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from tmln.experiments.files import read_regular, write_whole
from tmln.writing import writing

# Object stores that look like a disk: they work on one machine; between machines no lock holds.
OBJECTS = ("s3fs", "goofys", "gcsfuse", "blobfuse", "blobfuse2", "rclone", "mountpoint-s3", "ossfs", "geesefs")
REMEDY = "choose another --runs: a local disk will do, and NFS, CephFS, Lustre, GPFS or SMB if mounted with flock"


def find_missing(folder: Path) -> list[str]:
    """Return what the file system of a folder cannot do, tried with a few small files."""
    place = folder / f".trying-{uuid.uuid4().hex}"
    with writing(folder):  # what the user knows of
        place.mkdir(parents=True)
        try:
            return [need for need, holds in NEEDED.items() if not _holds(holds, place)]
        finally:
            with suppress(OSError):  # why it cannot be written is said already
                for path in sorted(place.rglob("*"), reverse=True):
                    path.rmdir() if path.is_dir() else path.unlink()
                place.rmdir()


def check_file_system(folder: Path) -> str:
    """Raise if the file system of a folder lacks something; else return a warning, or nothing."""
    kind = file_system_type(folder)
    lacks = find_missing(folder)
    if lacks:
        named = f" ({kind})" if kind else ""
        raise ValueError(
            f"the file system of {folder}{named} cannot hold runs: it does not {', nor '.join(lacks)}; {REMEDY}"
        )
    if kind.removeprefix("fuse.") in OBJECTS:
        return (
            f"{folder} is on {kind}, where locks between machines do not hold: "
            "use it from one machine at a time, or let machines share the runs out with --shard"
        )
    return ""


def file_system_type(folder: Path) -> str:
    """Return the type of the file system, e.g. ``nfs4`` or ``fuse.s3fs``; empty if unknown."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    found, depth = "", -1
    where = folder.resolve()
    for line in lines:
        mount, _, rest = line.partition(" - ")
        at = Path(mount.split()[4].replace("\\040", " "))
        if where.is_relative_to(at) and len(at.parts) >= depth:  # a later mount covers an earlier one
            found, depth = rest.split()[0], len(at.parts)
    return found


def _holds(holds: Callable[[Path], bool], place: Path) -> bool:
    try:
        return holds(place)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):  # no matter of its kind
            raise
        return False


def _try_lock(place: Path) -> bool:
    first, second = (FileLock(place / "lock", blocking=False, fallback_to_soft=False) for _ in range(2))
    with first:
        try:
            second.acquire()
        except Timeout:
            return True
        second.release()
    return False


def _try_replace(place: Path) -> bool:
    (place / "old").write_text("old", encoding="utf-8")
    (place / "new").write_text("new", encoding="utf-8")
    os.replace(place / "new", place / "old")
    return (place / "old").read_text(encoding="utf-8") == "new" and not (place / "new").exists()


def _try_rename(place: Path) -> bool:
    (place / "folder").mkdir()
    (place / "folder" / "file").write_bytes(b"")
    os.rename(place / "folder", place / "moved")
    return (place / "moved" / "file").exists() and not (place / "folder").exists()


NEEDED: dict[str, Callable[[Path], bool]] = {
    "lock a file (flock), by which one process at a time works on a run": _try_lock,
    "replace a file by renaming, by which results appear whole": _try_replace,
    "rename a folder, by which runs appear whole": _try_rename,
}


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
                check_file_system(self.folder)  # says what its file system lacks
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
        with suppress(OSError):  # the lock ends with this process anyway
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
