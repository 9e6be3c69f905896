"""What a file system must do so that several processes, of several machines, can share a folder of runs; what it lacks.

A lock is a file that only one process can make. Hard links do that on every file system that has them; where there are
none (exFAT, many of FUSE and SMB) a file that is made exclusively does, but is empty for a moment.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tmln.writing import writing

NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL, errno.EACCES)
# Stores of objects that look like a disk. On one machine they do what is asked; between machines nothing is exclusive.
OBJECTS = ("s3fs", "goofys", "gcsfuse", "blobfuse", "blobfuse2", "rclone", "mountpoint-s3", "ossfs", "geesefs")
REMEDY = "choose another --out: a local disk, NFS 3 or later, CephFS, Lustre, GPFS or SMB do all that is needed"


def make_once(path: Path, text: str) -> bool:
    """Make a file that holds this, as one process of all that try can; False if it was there."""
    aside = path.with_name(f".taking-{uuid.uuid4().hex}")
    try:
        aside.write_text(text, encoding="utf-8")
        os.link(aside, path)  # whole or not at all: an empty lock would be nobody's until it is stale
        return True
    except FileExistsError:
        # a server whose answer was lost is asked again, and then finds what it made itself
        with suppress(FileNotFoundError):  # who had it is through with it
            return os.path.samefile(aside, path)
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _made_alone(path, text)
    finally:
        aside.unlink(missing_ok=True)


def _made_alone(path: Path, text: str) -> bool:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(handle)
    return True


def missing(folder: Path) -> list[str]:
    """What the file system of this folder does not do, in words; a few small files are made and removed."""
    place = folder / f".trying-{uuid.uuid4().hex}"
    with writing(folder):  # what the user knows of
        place.mkdir(parents=True)
        try:
            return [said for said, holds in NEEDED.items() if not _holds(holds, place)]
        finally:
            with suppress(OSError):  # why it cannot be written is said already
                for path in sorted(place.rglob("*"), reverse=True):
                    path.rmdir() if path.is_dir() else path.unlink()
                place.rmdir()


def check(folder: Path) -> str:
    """An error that names what the folder's file system lacks; else a warning, if there is reason for one."""
    kind = kind_of(folder)
    lacks = missing(folder)
    if lacks:
        named = f" ({kind})" if kind else ""
        raise ValueError(
            f"the file system of {folder}{named} cannot hold runs: it does not {', nor '.join(lacks)}; {REMEDY}"
        )
    if kind.removeprefix("fuse.") in OBJECTS:
        return (
            f"{folder} is on {kind}, where two machines can both make the same file, so that locks between them do not "
            "hold: use it from one machine at a time, or let machines share the runs out with --shard"
        )
    return ""


def kind_of(folder: Path) -> str:
    """The type of the file system, e.g. ``nfs4`` or ``fuse.s3fs``; empty where the system does not tell."""
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


def _once(place: Path) -> bool:
    first, second = _made_alone(place / "once", "1"), _made_alone(place / "once", "2")
    return first and not second and (place / "once").read_text(encoding="utf-8") == "1"


def _shown(place: Path) -> bool:
    (place / "shown").write_bytes(b"")
    return "shown" in os.listdir(place)


def _replaced(place: Path) -> bool:
    (place / "old").write_text("old", encoding="utf-8")
    (place / "new").write_text("new", encoding="utf-8")
    os.replace(place / "new", place / "old")
    return (place / "old").read_text(encoding="utf-8") == "new" and not (place / "new").exists()


def _moved(place: Path) -> bool:
    (place / "folder").mkdir()
    (place / "folder" / "file").write_bytes(b"")
    os.rename(place / "folder", place / "moved")
    return (place / "moved" / "file").exists() and not (place / "folder").exists()


def _dated(place: Path) -> bool:
    path = place / "dated"
    path.write_bytes(b"")
    os.utime(path, (1e9, 1e9))
    before = path.stat().st_mtime
    os.utime(path)
    return before == 1e9 < path.stat().st_mtime


def _overwritten(place: Path) -> bool:
    path = place / "text"
    path.write_text("abc   ", encoding="utf-8")
    handle = os.open(path, os.O_WRONLY)
    try:
        os.lseek(handle, -3, os.SEEK_END)
        os.write(handle, b"def")
    finally:
        os.close(handle)
    return path.read_text(encoding="utf-8") == "abcdef"


NEEDED: dict[str, Callable[[Path], bool]] = {
    "make a file exclusively (O_EXCL), by which locks are taken": _once,
    "list a file as soon as it is made, by which locks are found": _shown,
    "replace a file by renaming, by which results appear whole": _replaced,
    "rename a folder, by which runs appear whole": _moved,
    "date a file that is touched, by which signs of life are given": _dated,
    "write within a file, by which locks are given back": _overwritten,
}
