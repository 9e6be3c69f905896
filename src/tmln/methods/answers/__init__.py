"""Answers: how do features or logits become a prediction?"""

from typing import Any

from tmln.methods import Answer, Family
from tmln.methods.answers.argmax import LargestOutput
from tmln.methods.answers.ncm import NearestMean
from tmln.methods.answers.rebalanced import RebalancedAnswer

ANSWERS: Family[Answer[Any]] = Family(Answer, LargestOutput, NearestMean, RebalancedAnswer)

__all__ = ["ANSWERS"]
