"""Reading data of others: the data root, size limits, and errors that name the file."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

SHOWN = 20  # problems that an error names


class DataError(ValueError):
    """Data is missing or cannot be used; the message names the file and the remedy."""


class BadDataWarning(UserWarning):
    """Some data was left out, as ``skip_bad`` asked."""


class BadData:
    """Collector of problems met while data is read: ``with BadData("folder:photos", skip) as bad``.

    Without ``skip`` the first problem is raised. With it, all are counted in one warning at the
    end.
    """

    def __init__(self, what: str, skip: bool) -> None:
        self.what = what
        self.skip = skip
        self.found: list[str] = []

    def add(self, where: Path | str, reason: str | None = None) -> None:
        """Report one problem: a place and a reason, or both in one text."""
        problem = str(where) if reason is None else f"{where}: {reason}"
        if not self.skip:
            raise DataError(f"{problem} (skip_bad leaves bad data out)")
        self.found.append(problem)

    def raise_all(self, remedy: str) -> None:
        """Raise one error for all problems that were collected; ``remedy`` is what to do."""
        if len(self.found) == 1:
            raise DataError(f"{self.found[0]} ({remedy} leaves bad data out)")
        if self.found:
            rest = f"; and {len(self.found) - SHOWN} more" * (len(self.found) > SHOWN)
            shown = "; ".join(self.found[:SHOWN])
            raise DataError(f"{self.what}: {len(self.found)} bad items: {shown}{rest} ({remedy} leaves bad data out)")

    def check_labels(self, labels: NDArray[np.int64], classes: int, path: Path) -> NDArray[np.bool_]:
        """Return a mask of the labels in 0..classes-1, and report each of the others."""
        valid = (labels >= 0) & (labels < classes)
        for row in np.flatnonzero(~valid).tolist():
            self.add(path, f"image {row} has label {labels[row]}, not one of 0..{classes - 1}")
        return valid

    def __enter__(self) -> BadData:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.found:
            shown = "; ".join(self.found[:3]) + ("; ..." if len(self.found) > 3 else "")
            message = f"{self.what}: left out {len(self.found)} bad item(s): {shown}"
            warnings.warn(message, BadDataWarning, stacklevel=3)


def data_root(
    root: Path | str | None = None, environment: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> Path:
    """Return ``root`` if given, else ``TMLN_DATA``, else the platform's cache folder.

    The folder need not exist.
    """
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


def read_bounded(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most ``limit`` bytes.

    Other files are refused: a pipe would block for ever, a device never ends.
    """
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path}: cannot be read (not a regular file)")
        size = path.stat().st_size
        if size > limit:
            raise DataError(f"{path}: cannot be read ({size:,} bytes, more than the limit of {limit:,})")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
