"""BiC's correction: a case solved by hand, a general solver as an oracle, and the layer that takes it in."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

from tmln.learner import Learner
from tmln.methods.weights.bias_corrected import fit_correction


def test_two_samples_a_class_by_hand() -> None:
    """Old logit 0 throughout, new logit 1 or 3: alpha q + beta is the log odds of the label at each q.

    Of q = 1 a quarter of the weight is new, of q = 3 three quarters: alpha + beta = -log 3, 3 alpha + beta = log 3.
    """
    logits = torch.tensor([[0.0, 1.0]] * 4 + [[0.0, 3.0]] * 4)
    y = torch.tensor([0, 0, 0, 1, 0, 1, 1, 1])
    alpha, beta = fit_correction(logits, y, [1], 100)
    assert (alpha, beta) == pytest.approx((math.log(3), -2 * math.log(3)), abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_the_fit_is_the_minimum_that_a_general_solver_finds(seed: int) -> None:
    torch.manual_seed(seed)
    y = torch.cat([torch.arange(60) % 2, torch.arange(200) % 3 + 2])
    logits = 1.5 * torch.randn(260, 6) + 2 * torch.eye(6)[y]
    logits[:, 2:5] += 2.0
    logits[:, 5] = -torch.inf  # closed
    counts = np.bincount(y.numpy())

    def loss(v: np.ndarray) -> float:
        total = 0.0
        for row, label in zip(logits.double().tolist(), y.tolist(), strict=True):
            corrected = [v[0] * q + v[1] if 2 <= c < 5 else q for c, q in enumerate(row)]
            top = max(corrected)
            total += (top + math.log(sum(math.exp(q - top) for q in corrected)) - corrected[label]) / counts[label]
        return total / 5

    expected = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12})
    assert fit_correction(logits, y, [2, 3, 4], 100) == pytest.approx(tuple(expected.x), abs=1e-4)


def test_nothing_to_fit_to_leaves_logits_as_they_are() -> None:
    logits, y = torch.randn(6, 4), torch.arange(6) % 2
    assert fit_correction(logits, y, [2, 3], 100) == (1.0, 0.0)
    assert fit_correction(logits, y, [0, 1], 100) == (1.0, 0.0)
    assert fit_correction(logits, y, [1], 0) == (1.0, 0.0)


def test_the_layer_gives_corrected_logits_of_new_classes_alone() -> None:
    torch.manual_seed(0)
    task = [(torch.randn(20, 3), torch.arange(20) % 2 + 2 * k) for k in range(2)]
    found = []
    for weights in ("last", "bias-corrected"):
        torch.manual_seed(1)
        learner = Learner(nn.Linear(3, 4), "er", weights=weights, lr=0.1, batch_size=5, seed=0)
        for x, y in task:
            learner.learn((x, y), epochs=2)
        found.append(learner)
    plain, corrected = (learner.model(task[0][0]).detach() for learner in found)
    numbers = found[1].weights.diagnostics
    assert numbers["alpha"] != 1
    assert torch.equal(corrected[:, :2], plain[:, :2])
    assert torch.allclose(corrected[:, 2:], numbers["alpha"] * plain[:, 2:] + numbers["beta"], atol=1e-5)


def test_a_layer_without_biases_and_a_method_without_a_memory_are_refused() -> None:
    with pytest.raises(ValueError, match="bias"):
        Learner(nn.Linear(3, 4, bias=False), "bic").learn((torch.randn(8, 3), torch.arange(8) % 2))
    with pytest.raises(ValueError, match="memory"):
        Learner(nn.Linear(3, 4), "naive", weights="bias-corrected")
