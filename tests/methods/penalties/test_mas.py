"""Memory aware synapses by hand, and against a loop over single samples."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor, nn

from tests.methods.penalties.loop import Closing, close, make_context, make_net, make_tasks
from tests.zoo import ZOO
from tmln.curvature.pass_selection import _log_once
from tmln.methods.penalties.mas import MAS, MASSettings, compute_output_sensitivity, compute_squared_norm


def linear() -> tuple[nn.Linear, list[tuple[Tensor, Tensor]]]:
    """f = w.x with w=(1,2), and d f^2/dw = 2*f*x: x=(1,1) gives (6,6), x=(1,-1) gives (-2,2).

    The mean of absolute values is (4,4); the absolute value of the mean would be (2,4).
    """
    model = nn.Linear(2, 1, bias=False).double()
    model.weight.data = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    return model, [(torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64), torch.tensor([0, 0]))]


def test_the_absolute_value_is_of_each_sample() -> None:
    model, batches = linear()
    assert close(compute_output_sensitivity(model, batches, [model.weight])[0].flatten(), [4.0, 4.0])


def test_the_norm_is_over_all_outputs() -> None:
    # f = (x, 3x) at x=2: d(f1^2 + f2^2)/dw = 2*f*x = (8, 24)
    model = nn.Linear(1, 2, bias=False).double()
    model.weight.data = torch.tensor([[1.0], [3.0]], dtype=torch.float64)
    batch = (torch.tensor([[2.0]], dtype=torch.float64), torch.tensor([0]))
    assert close(compute_output_sensitivity(model, [batch], [model.weight])[0].flatten(), [8.0, 24.0])


def test_the_penalty_and_the_sum_over_tasks() -> None:
    # lambda=0.5, Omega=(4,4), d=(0.1,-0.2): 2*lambda*Omega*d = (0.4,-0.8)
    model, batches = linear()
    part = MAS(MASSettings(strength=0.5), model)
    part.end(make_context(model, 0, batches[0]))
    with torch.no_grad():
        model.weight += torch.tensor([[0.1, -0.2]], dtype=torch.float64)
    part.add_gradient()
    assert model.weight.grad is not None
    assert close(model.weight.grad.flatten(), [0.4, -0.8])
    # now w=(1.1,1.8): f = 2.9 and -0.7, gradients (5.8,5.8) and (-1.4,1.4), mean of absolute values 3.6
    part.end(make_context(model, 1, batches[0]))
    assert close(part.importance[0].flatten(), [7.6, 7.6])


def by_loop(model: nn.Module, x: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    model.eval()
    sums = [torch.zeros_like(p) for p in parameters]
    for sample in x:
        gradients = torch.autograd.grad(model(sample[None]).square().sum(), parameters, allow_unused=True)
        for total, gradient in zip(sums, gradients, strict=True):
            if gradient is not None:
                total += gradient.abs() / len(x)
    return sums


class Branching(nn.Module):
    """Looks at values, so that it cannot be vectorised."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_net()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x)
        return output if output.sum() > 0 else 2 * output


@pytest.mark.parametrize("make", [make_net, Branching])
def test_against_single_samples(make: type[nn.Module], caplog: pytest.LogCaptureFixture) -> None:
    model, (x, y) = make(), make_tasks()[0]
    parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    _log_once.cache_clear()
    with caplog.at_level(logging.WARNING), torch.no_grad():
        found = compute_output_sensitivity(model, [(x[:7], y[:7]), (x[7:], y[7:])], parameters)
    assert ("goes by loop" in caplog.text) == (make is Branching)
    expected = by_loop(model, x, parameters)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(found, expected, strict=True))
    assert any(bool((value > 0).any()) for value in found)


@pytest.mark.parametrize("name", ZOO)
def test_every_network_against_single_samples(name: str) -> None:
    """The Fisher's pass with absolute values, whichever way a network goes: rules, vmap over a module, the loop."""
    torch.manual_seed(1)
    model, batch = ZOO[name].make().double(), ZOO[name].draw(6)
    x = batch[0].double() if batch[0].is_floating_point() else batch[0]
    parameters: list[Tensor] = list(model.parameters())
    found = compute_output_sensitivity(model, [(x[:5], batch[-1][:5]), (x[5:], batch[-1][5:])], parameters)
    for a, b in zip(found, by_loop(model, x, parameters), strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-12)


def test_an_error_after_the_first_samples_is_not_taken_for_a_model_that_cannot_be_vectorised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, batches = linear()
    wrong = (torch.ones(1, 3, dtype=torch.float64), torch.tensor([0]))
    with pytest.raises(RuntimeError, match="shape"):
        compute_output_sensitivity(model, [*batches, wrong], [model.weight])
    assert not caplog.text


def test_the_norm_is_of_the_open_outputs() -> None:
    output = torch.tensor([[2.0, -torch.inf, -3.0]], requires_grad=True)
    norm = compute_squared_norm(output)
    assert norm.item() == 13.0
    assert torch.autograd.grad(norm.sum(), output)[0].tolist() == [[4.0, 0.0, -6.0]]


def test_no_samples_is_an_error() -> None:
    model, _ = linear()
    with pytest.raises(ValueError, match="no samples"):
        compute_output_sensitivity(model, [], [model.weight])


class Cut(nn.Module):
    """The rows of the open classes alone."""

    def __init__(self, model: nn.Module, classes: list[int]) -> None:
        super().__init__()
        self.inner, self.classes = model, classes

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x)
        return output[:, self.classes]


@pytest.mark.parametrize("make", [make_net, Branching])
@pytest.mark.parametrize("added", [False, True])
def test_closed_classes_have_no_part_in_the_norm(
    make: type[nn.Module], added: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model, (x, y), classes = make(), make_tasks()[0], [0, 1, 4]
    closing, cut = Closing(model, classes, added), Cut(model, classes)
    with caplog.at_level(logging.ERROR), torch.no_grad():
        part = MAS(MASSettings(), closing)
        part.end(make_context(closing, 0, (x, y)))
        expected = compute_output_sensitivity(cut, [(x, y)], part.parameters)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(part.importance, expected, strict=True))
    rows = next(v for n, v in zip(names(closing), part.importance, strict=True) if n.endswith("head.weight"))
    assert not rows[[2, 3, 5]].any()
    assert (rows[classes].sum(1) > 0).all()


def names(model: nn.Module) -> list[str]:
    return [name for name, p in model.named_parameters() if p.requires_grad]


@pytest.mark.parametrize("make", [make_net, Branching])
def test_what_was_frozen_since_is_measured_all_the_same(
    make: type[nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    model, (x, y) = make(), make_tasks()[0]
    parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    expected = by_loop(model, x, parameters)
    parameters[0].requires_grad_(False)
    with caplog.at_level(logging.ERROR), torch.no_grad():
        found = compute_output_sensitivity(model, [(x, y)], parameters)
    assert torch.allclose(found[0], expected[0], rtol=1e-4, atol=1e-6)
    assert not parameters[0].requires_grad
