"""The nearest known name, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Names that other libraries use, and ours.
ALIASES = {
    "learning_rate": "lr",
    "rate": "lr",
    "eta": "lr",
    "optimizer": "step",
    "memory_size": "capacity",
    "buffer_size": "capacity",
    "bs": "batch_size",
    "num_epochs": "epochs",
    "n_epochs": "epochs",
    "optim": "step",
    "regularization": "penalty",
    "buffer": "replay",
}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?``, or nothing if no known name is close."""
    known = list(known)
    if ALIASES.get(name) in known:
        return f"; did you mean {ALIASES[name]!r}?"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
