"""The loop that everything goes through."""

from tmln.learner.diverged import Diverged
from tmln.learner.evaluate import evaluate
from tmln.learner.learner import Learner

__all__ = ["Diverged", "Learner", "evaluate"]
