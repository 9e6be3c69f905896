"""Files of a run: plain files only, written atomically, and JSON for any program.

A folder of runs may come from another user. A run's file there can be a link to a file of yours, a
pipe that is never written to, or a device that never ends; so its files are only opened here.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tmln.writing import replacing, writing

MOST_BYTES = 1 << 26  # of a file that is read whole; a result has some thousands
DEEPEST = 40  # lists and objects of a JSON text within each other
GUARDED = ("checkpoint", ".lock")  # folders of a run whose content is overwritten and deleted


class UnsafePath(ValueError):
    """A link, or something stranger, in place of a file or folder of a run."""


def refuse_link(path: Path) -> None:
    """Raise if there is a link at this path."""
    if path.is_symlink():
        raise UnsafePath(
            f"{path} is a link, and links within a folder of runs are not followed; put the file itself there"
        )


def refuse_links(folder: Path) -> None:
    """Raise if a run's folder is a link, or has links, pipes or devices where files are removed."""
    refuse_link(folder)
    for place in (folder, *(folder / name for name in GUARDED)):
        for path in place.iterdir() if place.is_dir() else ():
            for one in (path, *(path.iterdir() if place != folder and path.is_dir() else ())):
                refuse_link(one)
                if not (one.is_file() or one.is_dir()) and one.exists():
                    raise UnsafePath(f"{one} is neither a file nor a folder, and does not belong in a run; remove it")


def open_regular(path: Path, flags: int) -> int:
    """Return a descriptor of a plain file; nothing else of its name is followed or waited for."""
    refuse_link(path)
    careful = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    handle = os.open(path, flags | careful, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnsafePath(f"{path.name} is not a plain file")
    return handle


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """Read a whole file of at most ``most`` bytes."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"{path.name} has {size:,} bytes, more than the {most:,} that are read")
        return file.read(most)


def write_whole(path: Path, text: str | bytes) -> None:
    """Replace a file at once; a reader, also after a crash, sees the old content or the new."""
    with (
        replacing(path) as aside,
        os.fdopen(open_regular(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file,
    ):
        file.write(text.encode() if isinstance(text, str) else text)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, as far as they are missing."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def to_json(value: Any, indent: int | None = None) -> str:
    """Return strict JSON; NaN and infinities, which it cannot express, are null."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def from_json(text: bytes) -> Any:
    """Parse JSON; raise a ValueError for other text, and for values too deep or too large."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is too deep") from None
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"it is more than {DEEPEST} lists or objects deep")
        deeper: list[Any] = []
        for one in level:
            if isinstance(one, int) and one.bit_length() > 512:
                raise ValueError("a number in it is too large")
            deeper += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        level = deeper
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
