"""Continual learning with PyTorch: optimizers, methods, benchmarks and statistics."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # typing is large, and a program must come to own its signals early
if TYPE_CHECKING:
    from tmln import curvature, metrics, optim, streams
    from tmln.comparison import compare, read_results
    from tmln.curvature import Fisher, diagonal_fisher
    from tmln.deploy.state_file import open
    from tmln.learner import Learner
    from tmln.methods import recipes
    from tmln.methods.replay import Reservoir
    from tmln.optim import TMLN, Boundaries

__version__ = "0.3.0"  # the only place: the package's metadata read it here
__all__ = [
    "TMLN",
    "Boundaries",
    "Fisher",
    "Learner",
    "Reservoir",
    "compare",
    "curvature",
    "diagonal_fisher",
    "metrics",
    "open",
    "optim",
    "read_results",
    "recipes",
    "streams",
]

# Loaded when first asked for: importing tmln alone costs nothing.
_HOMES = {
    "TMLN": "tmln.optim",
    "compare": "tmln.comparison",
    "read_results": "tmln.comparison",
    "Boundaries": "tmln.optim",
    "Fisher": "tmln.curvature",
    "Learner": "tmln.learner",
    "Reservoir": "tmln.methods.replay",
    "diagonal_fisher": "tmln.curvature",
    "open": "tmln.deploy.state_file",
}


if not TYPE_CHECKING:  # type checkers and editors follow the imports above, and refuse other names

    def __getattr__(name):
        if name in _HOMES:
            return getattr(importlib.import_module(_HOMES[name]), name)
        if name == "recipes":
            return importlib.import_module("tmln.methods.recipes")
        if name in __all__:
            return importlib.import_module(f"tmln.{name}")
        raise AttributeError(f"module 'tmln' has no attribute {name!r} (it has {', '.join(__all__)})")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
