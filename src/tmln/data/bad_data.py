"""Bad data: an error that names the file, or, where the user asked for it, a counted warning."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import TracebackType


class DataError(ValueError):
    """Data that is missing or cannot be used; the message names the file and the remedy."""


class BadDataWarning(UserWarning):
    """Some data was left out, as ``skip_bad`` asked."""


class BadData:
    """Collects what is wrong while data is read: ``with BadData("folder:photos", skip_bad) as bad: ...``.

    Without ``skip`` the first complaint is raised. With it, all are counted and told in one warning.
    """

    def __init__(self, what: str, skip: bool) -> None:
        self.what = what
        self.skip = skip
        self.found: list[str] = []

    def add(self, where: Path | str, reason: str | None = None) -> None:
        """One complaint: where, and why; or both in one text, as an error has it."""
        complaint = str(where) if reason is None else f"{where}: {reason}"
        if not self.skip:
            raise DataError(f"{complaint} (skip_bad leaves bad data out)")
        self.found.append(complaint)

    def __enter__(self) -> BadData:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.found:
            shown = "; ".join(self.found[:3]) + ("; ..." if len(self.found) > 3 else "")
            message = f"{self.what}: left out {len(self.found)} bad item(s): {shown}"
            warnings.warn(message, BadDataWarning, stacklevel=3)
