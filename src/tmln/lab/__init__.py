"""One run: what it is, how it is done, where it is kept, and who is at work on it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tmln.lab.config import RunConfig, run_id
    from tmln.lab.lock import RunLock, RunLocked
    from tmln.lab.store import Entry, Run, Store

__all__ = ["Entry", "Run", "RunConfig", "RunLock", "RunLocked", "Store", "run_id"]

# Loaded when first asked for: looking at a store of runs needs no torch, and so takes no seconds.
_HOMES = {
    "Entry": "tmln.lab.store",
    "Run": "tmln.lab.store",
    "RunConfig": "tmln.lab.config",
    "RunLock": "tmln.lab.lock",
    "RunLocked": "tmln.lab.lock",
    "Store": "tmln.lab.store",
    "run_id": "tmln.lab.config",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tmln.lab' has no attribute {name!r}")
