"""Steps: how does a gradient become an update?"""

from typing import Any

from tmln.methods import Family, Step
from tmln.methods.steps.a_gem import AGEMStep
from tmln.methods.steps.adamw import AdamWStep
from tmln.methods.steps.fopng import FOPNGStep
from tmln.methods.steps.frozen import FirstSessionStep, FrozenStep
from tmln.methods.steps.gem import GEMStep
from tmln.methods.steps.mofo import MoFOStep
from tmln.methods.steps.ocar import OCARStep
from tmln.methods.steps.retrain import RetrainStep
from tmln.methods.steps.sam import SAMStep
from tmln.methods.steps.sgd import SGDStep
from tmln.methods.steps.slow_backbone import SlowBackboneStep
from tmln.methods.steps.tmln import TMLNStep
from tmln.methods.steps.upgd import UPGDStep

STEPS: Family[Step[Any]] = Family(
    Step,
    SGDStep,
    TMLNStep,
    UPGDStep,
    OCARStep,
    AGEMStep,
    SAMStep,
    AdamWStep,
    MoFOStep,
    FOPNGStep,
    GEMStep,
    FrozenStep,
    FirstSessionStep,
    RetrainStep,
    SlowBackboneStep,
)

__all__ = ["STEPS"]
