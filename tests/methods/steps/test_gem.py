"""GEM: the quadratic program against an oracle, the projection by hand, groups of stored samples by task."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

from tmln.learner import Learner
from tmln.methods.steps.gem import GEMStep, project_onto_cone, solve_dual


@pytest.mark.parametrize("seed", range(8))
def test_the_dual_has_the_minimum_that_a_general_solver_finds(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    count = 1 + seed
    root = drawn.normal(size=(count, count + 2))
    quadratic, linear, margin = root @ root.T + 0.1 * np.eye(count), drawn.normal(size=count) * 3, 0.5 * (seed % 2)
    found = solve_dual(quadratic, linear, margin)
    expected = minimize(
        lambda v: v @ quadratic @ v / 2 + linear @ v,
        np.full(count, margin + 1.0),
        jac=lambda v: quadratic @ v + linear,
        bounds=[(margin, None)] * count,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10},
    )
    assert found == pytest.approx(expected.x, abs=1e-5)
    assert (found >= margin).all()


def test_one_task_by_hand() -> None:
    """g = (-2, 3), r = (1, 0): P = 1.001, q = -2, v = 2/1.001, and g + v r = (-0.002, 3)."""
    (found,) = project_onto_cone([torch.tensor([-2.0, 3.0])], [[torch.tensor([1.0, 0.0])]], margin=0.0)
    assert found.tolist() == pytest.approx([-2 + 2 / 1.001, 3.0], abs=1e-6)


def test_two_tasks_by_hand() -> None:
    """Opposite to both references (1, 0) and (0, 1): both coordinates become zero, up to the ridge."""
    references = [[torch.tensor([1.0, 0.0])], [torch.tensor([0.0, 1.0])]]
    (found,) = project_onto_cone([torch.tensor([-1.0, -4.0])], references, margin=0.0)
    assert found.tolist() == pytest.approx([-1 + 1 / 1.001, -4 + 4 / 1.001], abs=1e-6)
    (found,) = project_onto_cone([torch.tensor([-1.0, 4.0])], references, margin=0.5)
    assert found.tolist() == pytest.approx([-1 + 1 / 1.001, 4.5], abs=1e-6)  # the margin adds half of the second one
    agreeing = [torch.tensor([1.0, 0.0])]
    assert project_onto_cone(agreeing, references, margin=0.5) is agreeing


def test_every_earlier_task_has_a_gradient_of_its_own() -> None:
    torch.manual_seed(0)
    learner = Learner(nn.Linear(3, 4), "gem", lr=0.1, batch_size=4)
    x = torch.randn(24, 3)
    for task in range(2):
        learner.learn((x[12 * task : 12 * task + 12], torch.arange(12) % 2 + 2 * task))
    step = learner.step
    assert isinstance(step, GEMStep)
    _, _, tasks = next(step.memories.batches(100, ("x", "y", "task")))
    assert tasks.bincount().tolist() == [12, 12]
