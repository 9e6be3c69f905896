"""Components for replay, penalty, step, weights and answer, and the recipes that combine them.

Components of your own derive from the classes exported here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tmln.methods.component import (
        BuildContext,
        Component,
        Growth,
        MemoryConditions,
        MemoryTerm,
        Settings,
        copy_state,
        weight_sums,
    )
    from tmln.methods.features import Features
    from tmln.methods.interfaces import Answer, Closure, Penalty, Replay, Step, Weights, choose_heads
    from tmln.methods.registry import INNER, Family, Guide, read_settings
    from tmln.methods.task_context import Batch, TaskContext, get_reference_weight, move_to_model, prepare_inputs

# Imported at first use: the table of methods is read without torch.
_MODULES = {
    "component": "BuildContext Component Growth MemoryConditions MemoryTerm Settings copy_state weight_sums",
    "features": "Features",
    "interfaces": "Answer Closure Penalty Replay Step Weights choose_heads",
    "registry": "INNER Family Guide read_settings",
    "task_context": "Batch TaskContext get_reference_weight move_to_model prepare_inputs",
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
    "choose_heads",
    "copy_state",
    "get_reference_weight",
    "move_to_model",
    "prepare_inputs",
    "read_settings",
    "weight_sums",
]  # fmt: skip


if not TYPE_CHECKING:  # type checkers and editors follow the imports above, and refuse other names

    def __getattr__(name):
        for module, names in _MODULES.items():
            if name in names.split():
                return getattr(importlib.import_module(f"tmln.methods.{module}"), name)
        raise AttributeError(f"module 'tmln.methods' has no attribute {name!r}")
