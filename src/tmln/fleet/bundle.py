"""Runs as bytes, for machines that share no disk: a folder is packed here and unpacked there, its result last."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from tmln.lab.files import make_folder, open_own, refuse_links, write_whole

RESULT = "result.json"  # its presence means that a run is finished
STAYS = (".lock",)  # whose it is, where it is


def pack(folder: Path, only: Iterable[str] | None = None) -> bytes:
    """All files of a run's folder (or ``only`` these) but its lock; nothing for a run that is not there."""
    if not folder.is_dir():
        return b""
    refuse_links(folder)
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as file:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            hidden = any(part in STAYS or part.startswith(".") for part in name.parts)
            if path.is_file() and not path.is_symlink() and not hidden and (only is None or str(name) in only):
                with os.fdopen(open_own(path, os.O_RDONLY), "rb") as whole:
                    file.writestr(name.as_posix(), whole.read())
    return found.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """The same files in this folder; whoever dies on the way leaves a run that is not finished."""
    if not data:
        return
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        for name in sorted(file.namelist(), key=lambda name: name == RESULT):
            place = PurePosixPath(name)
            if place.is_absolute() or ".." in place.parts:
                raise ValueError(f"{name!r} is no file of a run")
            make_folder((folder / place).parent)
            write_whole(folder / place, file.read(name))  # zipfile verifies its CRC
