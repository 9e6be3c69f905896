"""How does an output become a class: the largest one, the nearest mean, or by a last layer put right for it."""

from typing import Any

from tmln.answers.argmax import LargestOutput
from tmln.answers.ncm import NearestMean
from tmln.answers.rebalanced import RebalancedAnswer
from tmln.parts import Answer, Family

ANSWERS: Family[Answer[Any]] = Family(Answer, LargestOutput, NearestMean, RebalancedAnswer)

__all__ = ["ANSWERS"]
