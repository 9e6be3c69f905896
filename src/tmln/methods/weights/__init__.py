"""Weights: which weights predict, and start the next task?"""

from typing import Any

from tmln.methods import Family, Weights
from tmln.methods.weights.aligned import AlignedWeights
from tmln.methods.weights.average import AverageWeights
from tmln.methods.weights.bias_corrected import BiasCorrectedHead
from tmln.methods.weights.last import LastWeights
from tmln.methods.weights.merge import MergedWeights
from tmln.methods.weights.realigned import RealignedHead
from tmln.methods.weights.stable import StableWeights

WEIGHTS: Family[Weights[Any]] = Family(
    Weights,
    LastWeights,
    AverageWeights,
    MergedWeights,
    StableWeights,
    AlignedWeights,
    RealignedHead,
    BiasCorrectedHead,
)

__all__ = ["WEIGHTS"]
