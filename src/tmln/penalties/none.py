"""No penalty: the loss as it is."""

from __future__ import annotations

from tmln.parts import Penalty, Settings


class NoPenalty(Penalty[Settings]):
    """Looks at nothing, adds nothing, keeps nothing."""

    name = "none"
