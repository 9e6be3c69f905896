"""Answers: how do features or logits become a prediction?"""

from typing import Any

from tmln.methods import Answer, Family
from tmln.methods.answers.argmax import LargestOutput
from tmln.methods.answers.cosine import CosineAnswer
from tmln.methods.answers.ncm import NearestMean
from tmln.methods.answers.ranpac import RandomProjection
from tmln.methods.answers.rebalanced import RebalancedAnswer
from tmln.methods.answers.slda import StreamingLDA
from tmln.methods.answers.stream_ncm import StreamMean

ANSWERS: Family[Answer[Any]] = Family(
    Answer, LargestOutput, NearestMean, RebalancedAnswer, StreamMean, StreamingLDA, RandomProjection, CosineAnswer
)

__all__ = ["ANSWERS"]
