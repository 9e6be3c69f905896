"""The loop that everything goes through, what it is scored by, and its state on disk."""

from tmln.learner.diverged import Diverged
from tmln.learner.evaluate import evaluate
from tmln.learner.learner import Learner
from tmln.learner.predict import Prediction
from tmln.learner.retention import Forgot, Retention

__all__ = ["Diverged", "Forgot", "Learner", "Prediction", "Retention", "evaluate"]
