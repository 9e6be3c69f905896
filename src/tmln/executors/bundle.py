"""Runs as bytes, for machines that share no disk: a folder is packed here and unpacked there, its result last."""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from tmln.experiments.files import make_folder, open_own, refuse_links, write_whole

RESULT = "result.json"  # its presence means that a run is finished
CHECKPOINT = re.compile(r"checkpoint/\d+-step-(\d+)/.+")


def pack(folder: Path, only: Iterable[str] | None = None) -> bytes:
    """All files of a run's folder (or ``only`` these) but hidden ones, as its lock is; nothing for one not there."""
    if not folder.is_dir():
        return b""
    refuse_links(folder)
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as file:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            hidden = any(part.startswith(".") for part in name.parts)
            if path.is_file() and not path.is_symlink() and not hidden and (only is None or str(name) in only):
                with os.fdopen(open_own(path, os.O_RDONLY), "rb") as own:
                    file.writestr(name.as_posix(), own.read())
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


def names_in(data: bytes) -> list[str]:
    """The files of a packed folder."""
    return zipfile.ZipFile(io.BytesIO(data)).namelist() if data else []


def furthest(names: Iterable[str]) -> int:
    """The last step of which these files of a run are a checkpoint; -1 if there is none.

    >>> furthest(["log.jsonl", "checkpoint/00000002-step-30/state.json", "checkpoint/00000001-step-9/state.json"])
    30
    """
    return max((int(match[1]) for name in names if (match := CHECKPOINT.fullmatch(name))), default=-1)
