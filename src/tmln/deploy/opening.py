"""Open a state file by its path alone."""

from __future__ import annotations

import os
from pathlib import Path

from tmln.deploy.state_file import open_learner
from tmln.learner import Learner


def open(path: str | os.PathLike[str]) -> Learner:
    """Return the learner of a state file, ready to predict and to go on learning.

    The file says how its model is built and how inputs are prepared::

        learner = tmln.open("shop.tmln")
        learner.predict("photos/")  # or paths, Pillow images, arrays [H, W, 3] of uint8
        learner.learn("week3/", epochs=10)
        learner.save("shop.tmln")

    States of models that are code of your own, ``package.module:Name``, need TMLN_ALLOW_CODE=1.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a state, was damaged, or does not say how its model is built, as
            one that ``Learner.save`` wrote for a model of your own; ``Learner.load`` reads that.
    """
    return open_learner(Path(path))
