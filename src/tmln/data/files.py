"""Where data sets live, and files of others read whole: plain ones only, up to a size."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tmln.data.bad_data import DataError


def data_root(
    root: Path | str | None = None, environment: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> Path:
    """``root`` where given, else ``TMLN_DATA``, else the platform's folder for caches; it need not exist."""
    if root is not None:
        return Path(root).expanduser()
    if environment.get("TMLN_DATA"):
        return Path(environment["TMLN_DATA"]).expanduser()
    home = Path.home()
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / "tmln"
    if platform == "darwin":
        return home / "Library" / "Caches" / "tmln"
    return Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "tmln"


def read_bounded(path: Path, most: int) -> bytes:
    """The content of a plain file of at most so many bytes: a pipe would wait for ever, a device never ends."""
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
