"""One run: its configuration, execution, folder, lock, log, checkpoint and result."""

from __future__ import annotations

import importlib
import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tmln.experiments.config import RunConfig, run_id
    from tmln.experiments.lock import RunLock, RunLocked
    from tmln.experiments.store import Entry, Run, Store

__all__ = ["Entry", "Run", "RunConfig", "RunLock", "RunLocked", "Store", "run_id"]

# Imported when they are first used: listing runs needs no torch.
_HOMES = {
    "Entry": "tmln.experiments.store",
    "Run": "tmln.experiments.store",
    "RunConfig": "tmln.experiments.config",
    "RunLock": "tmln.experiments.lock",
    "RunLocked": "tmln.experiments.lock",
    "Store": "tmln.experiments.store",
    "run_id": "tmln.experiments.config",
}


def _check_platform() -> None:
    """Raise an ImportError that names what this system lacks to do runs."""
    lacking = [] if hasattr(os, "fork") else ["os.fork"]
    for name in ("fcntl", "resource"):
        lacking.append(name)
        with suppress(ImportError):
            importlib.import_module(name)
            lacking.remove(name)
    if lacking:
        raise ImportError(
            f"runs and the command line need Linux or macOS: this system has no {', '.join(lacking)}; tmln.TMLN, "
            "tmln.diagonal_fisher, tmln.Reservoir and tmln.Learner work here"
        )


_check_platform()


if not TYPE_CHECKING:  # type checkers and editors follow the imports above, and refuse other names

    def __getattr__(name):
        if name in _HOMES:
            return getattr(importlib.import_module(_HOMES[name]), name)
        raise AttributeError(f"module 'tmln.experiments' has no attribute {name!r}")
