"""Methods: components for replay, penalty, step, weights and answer, and the recipes that combine them.

Components of your own derive from the classes named here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tmln.methods.component import (
        BuildContext,
        Component,
        MemoryConditions,
        MemoryTerm,
        Settings,
        copied,
        weight_sums,
    )
    from tmln.methods.family import Family, read_settings
    from tmln.methods.features import Features
    from tmln.methods.growth import Growth
    from tmln.methods.guide import Guide
    from tmln.methods.interfaces import Answer, Closure, Penalty, Replay, Step, Weights
    from tmln.methods.registry import INNER
    from tmln.methods.task_context import Batch, TaskContext, feed, home, to_model

# Imported when first used: the table of methods is read without torch.
_HOMES = {
    "tmln.methods.component": "BuildContext Component MemoryConditions MemoryTerm Settings copied weight_sums",
    "tmln.methods.family": "Family read_settings",
    "tmln.methods.features": "Features",
    "tmln.methods.growth": "Growth",
    "tmln.methods.guide": "Guide",
    "tmln.methods.interfaces": "Answer Closure Penalty Replay Step Weights",
    "tmln.methods.registry": "INNER",
    "tmln.methods.task_context": "Batch TaskContext feed home to_model",
}
__all__ = [
    "INNER",
    "Answer",
    "Batch",
    "BuildContext",
    "Closure",
    "Component",
    "Family",
    "Features",
    "Growth",
    "Guide",
    "MemoryConditions",
    "MemoryTerm",
    "Penalty",
    "Replay",
    "Settings",
    "Step",
    "TaskContext",
    "Weights",
    "copied",
    "feed",
    "home",
    "read_settings",
    "to_model",
    "weight_sums",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for home_module, names in _HOMES.items():
        if name in names.split():
            return getattr(importlib.import_module(home_module), name)
    raise AttributeError(f"module 'tmln.methods' has no attribute {name!r}")
