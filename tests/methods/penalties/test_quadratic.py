"""The spring to an anchor: value, gradient, the proximal step, and the warning."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from tests.methods.penalties.loop import Numbers, close
from tmln.methods.penalties.quadratic import (
    Quadratic,
    QuadraticSettings,
    add_penalty_gradient,
    compute_penalty,
    divide_by_maximum,
    find_maximum,
    proximal_step_,
)


class Spring(Quadratic[QuadraticSettings]):
    """The mechanics alone: lambda * sum w d^2."""

    name = "spring"
    Settings = QuadraticSettings


def tensors(*rows: list[float]) -> list[Tensor]:
    return [torch.tensor(row, dtype=torch.float64) for row in rows]


def spring(model: nn.Module, importance: list[float], strength: float, proximal: bool = False) -> Spring:
    part = Spring(QuadraticSettings(strength=strength, proximal=proximal), model)
    part.consolidate(tensors(importance))
    return part


def test_value_and_gradient_by_hand() -> None:
    # F=(0.36,0.64), lambda=10, theta-theta*=(0.1,-0.2), half form: c = lambda
    fisher, anchor, weights = tensors([0.36, 0.64]), tensors([1.0, 1.0]), tensors([1.1, 0.8])
    assert compute_penalty(weights, anchor, fisher, 10.0).item() == pytest.approx(0.146)
    assert close(add_penalty_gradient(tensors([0.0, 0.0]), weights, anchor, fisher, 10.0)[0], [0.36, -1.28])
    assert close(add_penalty_gradient(tensors([1.0, 2.0]), weights, anchor, fisher, 10.0)[0], [1.36, 0.72])


def test_the_gradient_is_autograds() -> None:
    torch.manual_seed(0)
    weights, anchor, importance = ([torch.randn(3, 2).double(), torch.randn(4).double()] for _ in range(3))
    leaves = [w.clone().requires_grad_() for w in weights]
    expected = torch.autograd.grad(compute_penalty(leaves, anchor, importance, 0.7), leaves)
    found = add_penalty_gradient([torch.zeros_like(w) for w in weights], weights, anchor, importance, 0.7)
    assert all(torch.allclose(a, b) for a, b in zip(found, expected, strict=True))


def test_a_proximal_step_by_hand() -> None:
    # (theta' + 2*eta*lambda*w*theta*) / (1 + 2*eta*lambda*w) with eta=0.1, lambda=5, w=(1, 3, 0): x = (1, 3, 0)
    weights, anchor = tensors([2.0, 8.0, 7.0]), tensors([0.0, 4.0, 1.0])
    proximal_step_(weights, anchor, tensors([1.0, 3.0, 0.0]), 2 * 0.1 * 5)
    assert close(weights[0], [1.0, 5.0, 7.0])


def test_the_peak_is_of_all_tensors_together() -> None:
    values = tensors([1.0, 4.0], [2.0], [])
    assert find_maximum(values) == 4.0
    assert [v.tolist() for v in divide_by_maximum(values)] == [[0.25, 1.0], [0.5], []]
    assert divide_by_maximum(tensors([0.0]))[0].tolist() == [0.0]
    assert find_maximum([]) == 0.0


def test_without_an_anchor_the_gradient_is_not_even_replaced() -> None:
    model = Numbers(1.0)
    part = Spring(QuadraticSettings(strength=3.0), model)
    part.begin(model.context())
    model.theta.grad = gradient = torch.tensor([0.3], dtype=torch.float64)
    part.add_gradient()
    assert model.theta.grad is gradient


def test_the_plain_gradient_survives_and_a_missing_one_is_zero() -> None:
    model = Numbers(1.5)
    part = spring(model, [2.0], strength=3.0)
    with torch.no_grad():
        model.theta.fill_(2.0)  # d = 0.5, gradient 2*3*2*0.5 = 6
    part.add_gradient()
    assert close(torch.as_tensor(model.theta.grad), [6.0])
    plain = model.theta.grad = torch.tensor([0.25], dtype=torch.float64)
    part.add_gradient()
    assert plain.item() == 0.25
    assert close(model.theta.grad, [6.25])


def test_a_parameter_that_was_frozen_since_stays_without_a_gradient() -> None:
    model = Numbers(1.5)
    part = spring(model, [2.0], strength=3.0)
    model.theta.requires_grad_(False).add_(1.0)
    part.add_gradient()
    assert model.theta.grad is None


def test_a_sparse_gradient_is_refused_in_words() -> None:
    model = nn.Embedding(3, 2, sparse=True)
    part = spring(model, [1.0], strength=1.0)
    model(torch.tensor([0])).sum().backward()
    with pytest.raises(TypeError, match="spring needs dense gradients"):
        part.add_gradient()


@pytest.mark.parametrize("rate", [0.0999, 0.1, 0.2])
def test_it_warns_from_the_limit_on_and_once(rate: float) -> None:
    model = Numbers(0.0, 0.0)
    part = spring(model, [0.5, 2.0], strength=5.0)  # rate*strength*2 reaches 1 at rate 0.1
    if rate < 0.1:
        part.begin(model.context(1, rate))
        return
    with pytest.warns(UserWarning, match=r"spring: rate 0\.[12] x strength 5 x largest importance 2 = [12]; from 1 on"):
        part.begin(model.context(1, rate))
    part.begin(model.context(2, rate))  # a second warning would be an error here


def test_the_warning_is_not_repeated_after_a_resume_and_names_the_remedy() -> None:
    model = Numbers(0.0)
    part = spring(model, [2.0], strength=5.0)
    with pytest.warns(UserWarning, match=r"Lower strength \(below 1\) or the learning rate, or set proximal=True"):
        part.begin(model.context(1, 0.5))
    resumed = Spring(QuadraticSettings(strength=5.0), model)
    resumed.load_state_dict(part.state_dict())
    resumed.begin(model.context(2, 0.5))


def test_the_limit_is_where_explicit_steps_diverge_and_the_proximal_step_does_not() -> None:
    def distance_after(strength: float, proximal: bool) -> float:
        model = Numbers(0.0)
        part = spring(model, [2.0], strength, proximal)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            part.begin(model.context(1, 0.1))
        with torch.no_grad():
            model.theta.fill_(1.0)
        for _ in range(50):
            model.theta.grad = torch.zeros_like(model.theta)
            part.add_gradient()
            with torch.no_grad():
                model.theta.sub_(0.1 * model.theta.grad)
            part.after_step()
        return abs(model.theta.item())

    assert distance_after(4.9, proximal=False) < 0.5
    assert distance_after(5.1, proximal=False) > 2.0
    assert distance_after(5.1, proximal=True) < 1e-9
    assert distance_after(1e6, proximal=True) < 1e-9


def test_proximal_neither_warns_nor_touches_the_gradient() -> None:
    model = Numbers(1.0)
    part = spring(model, [2.0], strength=1e6, proximal=True)
    part.begin(model.context(1, 1.0))
    gradient = model.theta.grad = torch.tensor([0.5], dtype=torch.float64)
    part.add_gradient()
    assert model.theta.grad is gradient


def test_divergence_is_said_at_the_tasks_end() -> None:
    part = Spring(QuadraticSettings(strength=2.0), Numbers(0.0))
    with pytest.raises(FloatingPointError, match="spring: the importance of the weights is not finite"):
        part.consolidate(tensors([float("nan")]))
