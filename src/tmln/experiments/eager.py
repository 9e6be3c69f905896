"""A run that compiles nothing does without torch's compiler, which takes 1.5 seconds to import."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from torch.optim import Optimizer

# The first call of each imports the compiler, to have it leave such calls alone, and remembers what to call here.
CALLS = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
REMEMBERED = "__dynamo_disable"


@contextmanager
def eager(wanted: bool = True) -> Iterator[None]:
    """Meanwhile optimizers call these as they are; where the compiler is there already, nothing is changed."""
    found = [getattr(vars(Optimizer).get(name), "__wrapped__", None) for name in CALLS]
    spared = [call for call in found if call is not None and wanted and "torch._dynamo" not in sys.modules]
    for call in spared:
        setattr(call, REMEMBERED, call)
    try:
        yield
    finally:
        for call in spared:
            vars(call).pop(REMEMBERED, None)
