"""The training loop, growing heads, evaluation and prediction, export, and the state on disk."""

from tmln.learner.evaluation import Prediction, evaluate
from tmln.learner.history import Forgot, Retention
from tmln.learner.learner import Learner
from tmln.learner.loop import Diverged

__all__ = ["Diverged", "Forgot", "Learner", "Prediction", "Retention", "evaluate"]
