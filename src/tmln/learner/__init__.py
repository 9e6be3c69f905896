"""The loop that everything goes through."""

from tmln.learner.evaluate import evaluate
from tmln.learner.learner import Diverged, Learner

__all__ = ["Diverged", "Learner", "evaluate"]
