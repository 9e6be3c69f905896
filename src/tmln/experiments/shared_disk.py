"""Check that the file system of a folder can hold runs."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from tmln.writing import writing

# Object stores that look like a disk: they work on one machine; between machines no lock holds.
OBJECTS = ("s3fs", "goofys", "gcsfuse", "blobfuse", "blobfuse2", "rclone", "mountpoint-s3", "ossfs", "geesefs")
REMEDY = "choose another --runs: a local disk will do, and NFS, CephFS, Lustre, GPFS or SMB if mounted with flock"


def missing(folder: Path) -> list[str]:
    """Return what the file system of a folder cannot do, tried with a few small files."""
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
    """Raise if the file system of a folder lacks something; else return a warning, or nothing."""
    kind = kind_of(folder)
    lacks = missing(folder)
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


def kind_of(folder: Path) -> str:
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


def _locked(place: Path) -> bool:
    first, second = (FileLock(place / "lock", blocking=False, fallback_to_soft=False) for _ in range(2))
    with first:
        try:
            second.acquire()
        except Timeout:
            return True
        second.release()
    return False


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


NEEDED: dict[str, Callable[[Path], bool]] = {
    "lock a file (flock), by which one process at a time works on a run": _locked,
    "replace a file by renaming, by which results appear whole": _replaced,
    "rename a folder, by which runs appear whole": _moved,
}
