"""The null penalty leaves a step alone."""

from __future__ import annotations

import torch

from tests.methods.penalties.loop import Numbers
from tmln.methods import Settings
from tmln.methods.penalties.none import NoPenalty


def test_it_adds_nothing_and_keeps_nothing() -> None:
    model = Numbers(1.0, 2.0)
    part = NoPenalty(Settings(), model)
    part.begin(model.context())
    found = model.walk(part, [0.5, -1.0], [0.0, 0.0])
    part.end(model.context())
    assert torch.equal(found, torch.tensor([0.5, -1.0], dtype=torch.float64))
    assert part.state_dict() == {}
    assert not part.needs_boundary
