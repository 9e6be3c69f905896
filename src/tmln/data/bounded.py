"""Files of others read whole: plain ones only (a pipe would wait for ever, a device never ends), up to a size."""

from __future__ import annotations

from pathlib import Path

from tmln.data.bad import DataError


def read_bounded(path: Path, most: int) -> bytes:
    """The content of a plain file of at most so many bytes."""
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path}: cannot be read (not a plain file)")
        size = path.stat().st_size
        if size > most:
            raise DataError(
                f"{path}: cannot be read ({size:,} bytes, more than the {most:,} that such a file may have)"
            )
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
