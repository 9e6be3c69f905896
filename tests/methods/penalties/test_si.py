"""Synaptic intelligence by hand."""

from __future__ import annotations

import torch

from tests.methods.penalties.loop import Numbers, close
from tmln.methods.penalties.si import SI, SISettings, divide_by_distance


def test_two_tasks_by_hand() -> None:
    # Task 1: g=-1 then -0.8, steps 0.1 and 0.08: omega = 0.164, Delta = 0.18, Omega = 0.164/(0.0324+0.1) = 1.238670695
    # Task 2, at d=0.3: penalty gradient 2*c*Omega*d = 2*0.5*1.238670695*0.3 = 0.3716012085
    # Its path is of the plain gradient: one step of 0.3 with g=-2, one of 0 -> omega = 0.6, Delta = 0.3:
    # Omega += 0.6/(0.09+0.1) = 3.157894737
    model = Numbers(1.0)
    part = SI(SISettings(strength=0.5, damping=0.1), model)
    part.begin(model.context())
    model.walk(part, [-1.0], [0.1])
    model.walk(part, [-0.8], [0.08])
    part.end(model.context())
    assert close(part.importance[0], [1.238670695])
    part.begin(model.context(1))
    assert close(model.walk(part, [-2.0], [0.3]), [-2.0])
    assert close(model.walk(part, [-1.0], [0.0]), [-1.0 + 0.3716012085])
    part.end(model.context(1))
    assert close(part.importance[0], [1.238670695 + 3.157894737])
    assert close(part.anchor[0], [1.48])


def test_a_weight_that_was_carried_uphill_is_not_important() -> None:
    path, moved = [torch.tensor([-0.5, 0.5])], [torch.tensor([0.5, 0.5])]
    assert close(divide_by_distance(path, moved, 0.25)[0], [0.0, 1.0])


def test_before_the_first_boundary_the_anchor_does_not_pull() -> None:
    model = Numbers(1.0)
    part = SI(SISettings(strength=100.0), model)
    part.begin(model.context())
    model.walk(part, [-1.0], [0.5])
    assert close(model.walk(part, [-1.0], [0.5]), [-1.0])
