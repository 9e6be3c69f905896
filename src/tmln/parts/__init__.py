"""What a part is: the questions it is asked, when, and all that it declares of itself."""

from tmln.families import INNER
from tmln.parts.family import Family, read_settings
from tmln.parts.growth import Growth
from tmln.parts.lesson import Batch, Lesson, feed, to_model
from tmln.parts.part import Beside, Given, Part, Settings, Term, copied, sums
from tmln.parts.questions import Closure, Penalty, Replay, Step, Weights

__all__ = [
    "INNER",
    "Batch",
    "Beside",
    "Closure",
    "Family",
    "Given",
    "Growth",
    "Lesson",
    "Part",
    "Penalty",
    "Replay",
    "Settings",
    "Step",
    "Term",
    "Weights",
    "copied",
    "feed",
    "read_settings",
    "sums",
    "to_model",
]
