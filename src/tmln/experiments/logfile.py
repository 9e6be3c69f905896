"""``log.jsonl``: one JSON object a line, each with its step.

A line that a kill cut short, or that a resumed run writes again, is removed.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tmln.experiments.files import from_json, open_regular, to_json, write_whole
from tmln.writing import write_all, writing

log = logging.getLogger(__name__)


def append_line(path: Path, record: Mapping[str, Any], check: Callable[[], None] = lambda: None) -> None:
    """Append one line, in one write, if ``check`` does not raise; on a full disk nothing of it.

    ``check`` is called when the file is open: another process that took the run over meanwhile has
    put a new file in its place (see :func:`truncate_after`), and this one writes to the old file,
    which nobody reads.
    """
    if not isinstance(record.get("step"), int):
        raise ValueError(f"a line of the log has a whole number 'step', which {dict(record)} has not")
    line = f"{to_json(record)}\n".encode()
    with (
        writing(path),
        os.fdopen(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab", buffering=0) as file,
    ):
        check()
        before = os.fstat(file.fileno()).st_size
        try:
            write_all(file, line)
        except OSError:
            os.ftruncate(file.fileno(), before)
            raise


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read all whole lines; skip an unfinished last one, and warn of others that are no JSON."""
    return [record for _, record in _records(path) if record is not None]


def truncate_after(path: Path, step: int, size: int | None = None) -> None:
    """Drop every line past ``step``, and an unfinished last one; a resumed run writes them again.

    ``size`` is the log's size when the checkpoint was written: later lines of the same step are
    dropped, too. The log is a new file then, out of reach of a process that has the old one open.
    """
    if not path.exists():
        return
    end = 0
    for length, record in _records(path):
        if (record is not None and record["step"] > step) or (size is not None and end + length > size):
            break
        end += length
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        kept = file.read(end)
    write_whole(path, kept)


def checksum(path: Path, size: int | None = None) -> int:
    """Return the CRC-32 of the first ``size`` bytes, or of all; that of nothing without a log.

    A damaged line can still be JSON with another number: only a checksum stored elsewhere shows it.
    """
    if not path.exists():
        return 0
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        return zlib.crc32(file.read() if size is None else file.read(size))


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the length of each finished line and its record, None if it is damaged."""
    if not path.exists():
        return
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            record = _parse(line)
            if record is None:
                log.warning("%s: line %d is damaged and passed over", path, number)
            yield len(line), record


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = from_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None
