"""Online EWC by hand: the per-sample Fisher, its decay, the half form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from tests.methods.penalties.loop import close, make_context, make_net, make_tasks
from tmln.methods import TaskContext
from tmln.methods.penalties.ewc import EWC, EWCSettings, add_decayed, compute_task_fisher, weight_by_likelihood


def logistic() -> tuple[nn.Linear, TaskContext]:
    """Two logits without bias, zero weights: p = (1/2, 1/2), so d log p(y|x)/dW = (+-x/2, -+x/2).

    x=2 with y=0 gives (1, -1), x=4 with y=1 gives (-2, 2): F = (1 + 4)/2 = 2.5 for both. The squared mean gradient
    would be ((1 - 2)/2)^2 = 0.25.
    """
    model = nn.Linear(1, 2, bias=False).double()
    nn.init.zeros_(model.weight)
    return model, make_context(model, 0, (torch.tensor([[2.0], [4.0]]).double(), torch.tensor([0, 1])))


def test_the_fisher_is_per_sample_and_decays() -> None:
    model, context = logistic()
    part = EWC(EWCSettings(gamma=0.5), model)
    part.end(context)
    assert close(part.importance[0].flatten(), [2.5, 2.5])
    part.end(context)
    assert close(part.importance[0].flatten(), [3.75, 3.75])
    part.end(context)
    assert close(part.importance[0].flatten(), [4.375, 4.375])


def test_the_penalty_has_the_half() -> None:
    # lambda=4, F=2.5, d=(0.1, -0.2): gradient lambda*F*d = (1, -2)
    model, context = logistic()
    part = EWC(EWCSettings(strength=4.0), model)
    part.end(context)
    with torch.no_grad():
        model.weight += torch.tensor([[0.1], [-0.2]], dtype=torch.float64)
    part.add_gradient()
    assert model.weight.grad is not None
    assert close(model.weight.grad.flatten(), [1.0, -2.0])


def test_normalised_every_task_weighs_the_same() -> None:
    model, context = logistic()
    part = EWC(EWCSettings(normalize=True), model)
    part.end(context)
    part.end(context)
    assert close(part.importance[0].flatten(), [2.0, 2.0])


@pytest.mark.parametrize("decay", [0.0, 0.9, 1.0])
def test_decayed_sum_makes_new_tensors(decay: float) -> None:
    old: list[Tensor] = [torch.tensor([1.0, 2.0])]
    new: list[Tensor] = [torch.tensor([10.0, 0.0])]
    assert torch.allclose(add_decayed(old, new, decay)[0], torch.tensor([10.0 + decay, 2.0 * decay]))
    assert old[0].tolist() == [1.0, 2.0]


def test_weighted_by_likelihood_a_sample_that_is_doubted_counts_less() -> None:
    # p = 1/2 for both samples of logistic(): F = 2.5/2. With weights (1, 0) and x=2, y=0: p = 1/(1 + e^-2)
    model, context = logistic()
    part = EWC(EWCSettings(weighting="likelihood"), model)
    part.end(context)
    assert close(part.importance[0].flatten(), [1.25, 1.25])
    with torch.no_grad():
        model.weight[0] = 1.0
    p = 1 / (1 + math.exp(-2))
    (found,) = compute_task_fisher(
        make_context(model, 0, (torch.tensor([[2.0]]).double(), torch.tensor([0]))),
        [model.weight],
        weight_by_likelihood,
    )
    assert close(found.flatten(), [p * (2 * (1 - p)) ** 2] * 2)


class Scalar(nn.Module):
    """Its forward asks for values, so that samples go alone."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_net()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x)
        return output if output.sum() > 0 else 2 * output


class Gated(nn.Module):
    """A bare parameter has no rule: by vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.gate = make_net(), nn.Parameter(torch.linspace(0.5, 1.5, 6))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(self.gate * x)
        return output


@pytest.mark.parametrize("make", [make_net, Gated, Scalar])
@pytest.mark.parametrize("weighting", ["none", "likelihood"])
def test_against_single_samples(make: Callable[[], nn.Module], weighting: Literal["none", "likelihood"]) -> None:
    """p(y|x) * (d log p(y|x) / d theta)^2, one sample after another, in eval mode."""
    model, (x, y) = make(), make_tasks()[0]
    part = EWC(EWCSettings(weighting=weighting), model)
    part.end(make_context(model, 0, (x, y)))
    model.eval()
    expected = [torch.zeros_like(p) for p in part.parameters]
    for sample, label in zip(x, y, strict=True):
        log_p = model(sample[None]).log_softmax(1)[0, label]
        factor = log_p.exp().item() if weighting == "likelihood" else 1.0
        gradients = torch.autograd.grad(log_p, part.parameters, allow_unused=True)
        for total, gradient in zip(expected, gradients, strict=True):
            if gradient is not None:
                total += factor * gradient.square() / len(x)
    for found, value in zip(part.importance, expected, strict=True):
        torch.testing.assert_close(found, value, rtol=1e-4, atol=1e-7)
