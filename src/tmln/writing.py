"""Failed writes as one line: which file, why, and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

# number of the system's error -> what it means here, and what to do
REASONS = {
    errno.ENOSPC: ("the disk is full", "make room there"),
    errno.EDQUOT: ("the quota is used up", "make room there"),
    errno.EFBIG: ("files may not grow that large here", "raise the limit (ulimit -f)"),
    errno.EROFS: ("the file system is read-only", "make it writable, or choose another folder"),
    errno.EACCES: ("this user may not write there", "change its permissions, or choose another folder"),
    errno.EPERM: ("this user may not write there", "change its permissions, or choose another folder"),
    errno.EIO: ("the disk reports an error", "look at the disk, or choose another folder"),
    errno.ENOENT: ("its folder is gone", "make the folder again"),
    errno.ENOTDIR: ("what should be its folder is a file", "choose another folder"),
    errno.EISDIR: ("a folder of that name is there", "choose another name"),
}
EVERYWHERE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # the next write would fail as well


class CannotWrite(OSError):
    """A file could not be written; its old content is unchanged."""

    def __str__(self) -> str:
        why, remedy = REASONS.get(self.errno or 0, ("the system refuses", "see to that"))
        return (
            f"cannot write {self.filename}: {why} ({self.strerror}); {remedy}, and do the same again: "
            "it goes on from what is saved"
        )

    @property
    def everywhere(self) -> bool:
        """Whether other files of the same place would fail, too."""
        return self.errno in EVERYWHERE


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise :class:`CannotWrite` for ``path`` if the system refuses a write within the block.

    The file is named as the user knows it, also if the bytes go to another one first: of nested
    blocks the outer name counts.
    """
    try:
        yield
    except OSError as error:
        raise CannotWrite(error.errno, error.strerror or str(error), str(Path(path))) from error


def sync_path(path: Path) -> None:
    """Flush a file, or the names in a folder, so that they survive a power cut."""
    if os.name == "nt":  # there a folder cannot be opened
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield another path to write to; that file replaces the one at ``path`` after the block.

    A reader, also after a crash, sees the old content or the new.
    """
    aside = path.with_name(f".{path.name}.writing-{os.getpid()}")
    with writing(path):
        aside.unlink(missing_ok=True)  # of a process of the same number that was killed
        try:
            yield aside
            sync_path(aside)
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
        sync_path(path.parent)


def write_all(file: IO[bytes], data: bytes) -> None:
    """Write all bytes to an unbuffered file; the last room of a disk takes a part."""
    done = 0
    while done < len(data):
        done += file.write(data[done:])
