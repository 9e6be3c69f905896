"""Archives unpacked with care: plain files and folders only, inside the target, all or nothing."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from tmln.streams.bad import DataError


def unpack(archive: Path, into: Path) -> None:
    """Unpack a .zip or .tar(.gz) into a hidden folder, then move its top entries into place."""
    staging = into / f".unpacking-{archive.name}"
    if staging.exists():  # left by a run that was killed
        shutil.rmtree(staging)
    staging.mkdir(parents=True)
    try:
        for name, content in _members(archive):
            target = staging / inside(archive, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                target.mkdir(exist_ok=True)
            else:
                with content, open(target, "wb") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
        for entry in sorted(staging.iterdir()):
            if (into / entry.name).exists():
                raise DataError(f"{into / entry.name} is in the way of {archive.name}; move it away and try again")
        for entry in sorted(staging.iterdir()):
            os.replace(entry, into / entry.name)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise DataError(f"{archive}: not a sound archive ({error}); delete it and fetch it again") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def inside(archive: Path, name: str) -> PurePosixPath:
    """The member's path if it stays below the folder it is unpacked in; else an error."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive:
        raise DataError(f"{archive}: member {name!r} would be written outside its folder; nothing was unpacked")
    return path


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Names with their content, None for a folder."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as pack:
            for info in pack.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise DataError(f"{archive}: member {info.filename!r} is a link or a device")
                yield info.filename, None if info.is_dir() else pack.open(info)
        return
    with tarfile.open(archive) as tape:
        for member in tape:
            if not (member.isreg() or member.isdir()):
                raise DataError(f"{archive}: member {member.name!r} is a link or a device")
            yield member.name, None if member.isdir() else tape.extractfile(member)
