"""What a part is: the questions it is asked, when, and all that it declares of itself."""

from tmln.families import INNER
from tmln.guide import Guide
from tmln.parts.family import Family, read_settings
from tmln.parts.features import Features
from tmln.parts.growth import Growth
from tmln.parts.lesson import Batch, Lesson, feed, home, to_model
from tmln.parts.part import Beside, Given, Part, Settings, Term, copied, sums
from tmln.parts.questions import Answer, Closure, Penalty, Replay, Step, Weights

__all__ = [
    "INNER",
    "Answer",
    "Batch",
    "Beside",
    "Closure",
    "Family",
    "Features",
    "Given",
    "Growth",
    "Guide",
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
    "home",
    "read_settings",
    "sums",
    "to_model",
]
