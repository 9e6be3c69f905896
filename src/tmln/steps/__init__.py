"""How does a gradient become a move: the optimizers as parts of a recipe."""

from typing import Any

from tmln.parts import Family, Step
from tmln.steps.adamw import AdamWStep
from tmln.steps.agem import AGEMStep
from tmln.steps.fopng import FOPNGStep
from tmln.steps.mofo import MoFOStep
from tmln.steps.ocar import OCARStep
from tmln.steps.sam import SAMStep
from tmln.steps.sgd import SGDStep
from tmln.steps.tmln import TMLNStep
from tmln.steps.upgd import UPGDStep

STEPS: Family[Step[Any]] = Family(
    Step, SGDStep, TMLNStep, UPGDStep, OCARStep, AGEMStep, SAMStep, AdamWStep, MoFOStep, FOPNGStep
)

__all__ = ["STEPS"]
