"""Which weights answer, and go on: those just reached, an average of the way, or a merger with those from before."""

from typing import Any

from tmln.parts import Family, Weights
from tmln.weights.aligned import AlignedWeights
from tmln.weights.average import AverageWeights
from tmln.weights.last import LastWeights
from tmln.weights.merge import MergedWeights
from tmln.weights.stable import StableWeights

WEIGHTS: Family[Weights[Any]] = Family(
    Weights, LastWeights, AverageWeights, MergedWeights, StableWeights, AlignedWeights
)

__all__ = ["WEIGHTS"]
