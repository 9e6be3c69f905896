"""The path integral: by hand, and safe from whatever happens to ``.grad`` during the step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.methods.penalties.loop import Numbers, close
from tmln.methods.penalties.path_integral import Path, accumulate_path_
from tmln.methods.penalties.rwalk import RWalk, RWalkSettings
from tmln.methods.penalties.si import SI, SISettings


def test_two_steps_by_hand() -> None:
    # g=-1 then -0.8, steps 0.1 and 0.08: omega = 0.1 + 0.064
    theta = torch.tensor([0.0], dtype=torch.float64)
    path = Path([theta])
    path.begin()
    for gradient, step in ((-1.0, 0.1), (-0.8, 0.08)):
        path.after_backward([torch.tensor([gradient], dtype=torch.float64)], keep=True)
        theta += step
        path.after_update()
    assert close(path.total[0], [0.164])


def test_the_displacement_that_counts_is_the_real_one() -> None:
    total = [torch.zeros(2)]
    accumulate_path_(total, [torch.tensor([2.0, -1.0])], [torch.tensor([1.0, 1.0])], [torch.tensor([0.5, 0.0])])
    assert total[0].tolist() == [1.0, -1.0]  # the second went uphill


@pytest.mark.parametrize("nesterov", [False, True])
def test_an_optimizer_that_writes_into_the_gradient_does_not_spoil_it(nesterov: bool) -> None:
    theta = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = torch.optim.SGD([theta], lr=0.1, momentum=0.9, nesterov=nesterov, foreach=True)
    path = Path([theta])
    path.begin()
    expected = torch.zeros(2, dtype=torch.float64)
    for _ in range(3):
        plain: Tensor = theta.detach().clone()  # of theta^2/2
        before = theta.detach().clone()
        theta.grad = plain.clone()
        path.after_backward([theta.grad], keep=False)
        optimizer.step()
        path.after_update()
        expected -= plain * (theta.detach() - before)
    assert torch.allclose(path.total[0], expected, rtol=1e-12)
    assert bool((path.total[0] > 0).all())


def test_a_second_walk_without_a_look_adds_nothing() -> None:
    theta = torch.zeros(1)
    path = Path([theta])
    path.begin()
    path.after_backward([torch.ones(1)], keep=True)
    theta -= 1.0
    path.after_update()
    path.after_update()
    assert path.total[0].item() == 1.0


@pytest.mark.parametrize("make", [lambda m: SI(SISettings(), m), lambda m: RWalk(RWalkSettings(), m)])
def test_the_penalties_that_walk_a_path_are_safe_too(make: Callable[[Numbers], SI | RWalk]) -> None:
    model = Numbers(1.0, -2.0)
    part = make(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, foreach=True)
    expected = torch.zeros(2, dtype=torch.float64)
    for task in range(2):  # without a penalty in the first, with one in the second
        part.begin(model.context(task))
        expected.zero_()
        for _ in range(3):
            before = model.theta.detach().clone()
            model.theta.grad = before + task
            plain = model.theta.grad.clone()
            part.after_backward()
            part.add_gradient()
            optimizer.step()
            part.after_step()
            expected -= plain * (model.theta.detach() - before)
        assert torch.allclose(part.path.total[0], expected, rtol=1e-12)
        part.end(model.context(task))


def test_small_steps_count_beside_a_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """10^4 + 3e-4 is 10^4 in float32: without sums of their own, 2000 such steps would be lost."""
    monkeypatch.setattr("tmln.methods.penalties.path_integral.FLUSH_EVERY", 16)
    weight = torch.zeros(1)
    path = Path([weight])
    path.begin()
    for move in (1e4, *[3e-4] * 2000):
        weight.zero_()
        path.after_backward([-torch.ones(1)], keep=True)
        weight.fill_(move)
        path.after_update()
    assert float(path.total[0]) - 1e4 == pytest.approx(0.6, rel=0.05)
    again = Path([weight])
    again.load_state_dict(path.state_dict())
    assert torch.equal(again.total[0], path.total[0])
    assert again.steps == 2001 % 16
