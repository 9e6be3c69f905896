"""What is said under the paper's tables holds at the scale they are made at."""

from __future__ import annotations

import pytest

from tmln.paper.notes import NOTES, OF_CORE50, TUNED, select_notes
from tmln.paper.scales import SCALES, Scale


def test_notes_of_a_tuned_scale_stand_for_others() -> None:
    assert TUNED.keys() <= NOTES.keys()
    assert set(OF_CORE50) <= NOTES.keys()
    assert all(TUNED[key] != NOTES[key] for key in TUNED)


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_what_was_tuned_is_not_said_to_be_fixed(scale: Scale) -> None:
    said = " ".join(select_notes(NOTES, scale))
    assert scale.tuned != ("ten times eta" in said)
    assert scale.tuned != ("0.9 here for Naive" in said)
    assert scale.tuned != ("those of CIFAR-100 are used" in said)
    assert scale.tuned == ("not the Joint row, which is tuned" in said)
    assert scale.setup("core50").substitute != ("last fifth of each video" in said)
    if scale.tuned:
        momenta = {stand.chosen["naive"]["step.momentum"] for stand in scale.setups.values()}
        assert len(momenta) > 1  # it is tuned, and so no one number
