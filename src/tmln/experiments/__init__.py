"""One run: what it is, how it is done, where it is kept, and who is at work on it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tmln.experiments.config import RunConfig, run_id
    from tmln.experiments.lock import RunLock, RunLocked
    from tmln.experiments.store import Entry, Run, Store

__all__ = ["Entry", "Run", "RunConfig", "RunLock", "RunLocked", "Store", "run_id"]

# Loaded when first asked for: looking at a store of runs needs no torch, and so takes no seconds.
_HOMES = {
    "Entry": "tmln.experiments.store",
    "Run": "tmln.experiments.store",
    "RunConfig": "tmln.experiments.config",
    "RunLock": "tmln.experiments.lock",
    "RunLocked": "tmln.experiments.lock",
    "Store": "tmln.experiments.store",
    "run_id": "tmln.experiments.config",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tmln.experiments' has no attribute {name!r}")
