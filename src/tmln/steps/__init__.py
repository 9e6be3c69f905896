"""How does a gradient become a move: the optimizers as parts of a recipe."""

from typing import Any

from tmln.parts import Step
from tmln.steps.agem import INNER, AGEMStep

STEPS: dict[str, type[Step[Any]]] = {**INNER, AGEMStep.name: AGEMStep}

__all__ = ["STEPS"]
