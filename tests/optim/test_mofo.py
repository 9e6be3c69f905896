"""MoFO: by hand, AdamW where nothing is filtered, an oracle in plain Python, the contract of torch.optim."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.test_tmln import D, batch, close, small, train, weights
from tmln.optim import MoFO
from tmln.optim.mofo import largest_mask


def test_two_steps_by_hand() -> None:
    """Half of four move: first by the sign of g, then those with the largest m = 0.09*g1 + 0.1*g2."""
    p = nn.Parameter(torch.zeros(2, 2, dtype=D))
    optimizer = MoFO([p], lr=0.1, fraction=0.5, eps=1e-12)
    p.grad = torch.tensor([[4.0, -3.0], [2.0, 1.0]], dtype=D)
    optimizer.step()
    close(p.flatten(), [-0.1, 0.1, 0.0, 0.0])
    p.grad = torch.tensor([[-4.0, 0.0], [2.0, 1.0]], dtype=D)
    optimizer.step()  # m = (-0.04, -0.27), (0.38, 0.19): the second and the third
    mean, square = -0.27 / 0.19, 0.999 * 0.001 * 9 / (1 - 0.999**2)
    close(p.flatten(), [-0.1, 0.1 - 0.1 * mean / math.sqrt(square), -0.1, 0.0])


def test_the_filter_by_hand() -> None:
    assert largest_mask(torch.tensor([1.0, -4.0, 3.0, 0.0]), 0.25).tolist() == [False, True, False, False]
    assert largest_mask(torch.tensor([1.0, 2.0]), 0.01).tolist() == [False, True]  # one at least
    assert largest_mask(torch.tensor([2.0, -2.0, 1.0]), 0.34).tolist() == [True, True, False]  # equals go together
    assert largest_mask(torch.ones(3), 1.0).all()


def test_vectors_move_whole() -> None:
    p = nn.Parameter(torch.zeros(8, dtype=D))
    optimizer = MoFO([p], lr=0.1, fraction=0.1)
    p.grad = torch.arange(1.0, 9.0, dtype=D)
    optimizer.step()
    assert (p != 0).all()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_unfiltered_it_is_adamw(decay: float) -> None:
    ours, theirs = small(), small()
    train(ours, MoFO(ours.parameters(), 0.01, (0.8, 0.9), 1e-6, decay, fraction=1.0), 0, 10)
    theirs_optimizer = torch.optim.AdamW(theirs.parameters(), 0.01, (0.8, 0.9), 1e-6, decay)
    train(theirs, theirs_optimizer, 0, 10)
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("maximize", [False, True])
def test_against_an_oracle(maximize: bool) -> None:
    """Weight by weight, with sorting."""
    generator = torch.Generator().manual_seed(0)
    p = nn.Parameter(torch.randn(3, 4, generator=generator, dtype=D))
    optimizer = MoFO([p], 0.05, weight_decay=0.2, fraction=0.3, maximize=maximize)
    theta, m, v = p.detach().flatten().tolist(), [0.0] * 12, [0.0] * 12
    for t in range(1, 8):
        p.grad = torch.randn(3, 4, generator=generator, dtype=D)
        g = [(-x if maximize else x) for x in p.grad.flatten().tolist()]
        optimizer.step()
        m = [0.9 * a + 0.1 * b for a, b in zip(m, g, strict=True)]
        v = [0.999 * a + 0.001 * b * b for a, b in zip(v, g, strict=True)]
        moving = sorted(range(12), key=lambda i: -abs(m[i]))[:3]
        for i in range(12):
            theta[i] *= 1 - 0.05 * 0.2
            if i in moving:
                theta[i] -= 0.05 * (m[i] / (1 - 0.9**t)) / (math.sqrt(v[i] / (1 - 0.999**t)) + 1e-8)
        torch.testing.assert_close(p.detach().flatten(), torch.tensor(theta, dtype=D), rtol=1e-10, atol=1e-12)


def test_a_state_goes_on_to_the_bit() -> None:
    one, two = small(), small(seed=1)
    first, second = MoFO(one.parameters(), 0.01), MoFO(two.parameters(), 0.5)
    train(one, first, 0, 4)
    two.load_state_dict(one.state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for model, optimizer in ((one, first), (two, second)):
        train(model, optimizer, 4, 8)
    assert torch.equal(weights(one), weights(two))


def test_means_of_half_precision_are_single() -> None:
    model = small().bfloat16()
    optimizer = MoFO(model.parameters(), 0.01)
    x, y = batch(0)
    nn.functional.cross_entropy(model(x.bfloat16()).float(), y).backward()
    optimizer.step()
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    kinds: set[torch.dtype] = {v.dtype for state in optimizer.state.values() for v in state.values()}
    assert kinds == {torch.float32}


def test_a_head_that_grew() -> None:
    old, new = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(4, 3))
    optimizer = MoFO([old], 0.01)
    old.grad = torch.ones(2, 3)
    optimizer.step()
    mean: Tensor = optimizer.state[old]["exp_avg"].clone()
    optimizer.replace(old, new)
    assert torch.equal(optimizer.state[new]["exp_avg"][:2], mean)
    assert not optimizer.state[new]["exp_avg"][2:].any()


@pytest.mark.parametrize(
    ("option", "value"),
    [("lr", -1.0), ("eps", 0.0), ("betas", (1.0, 0.9)), ("weight_decay", -0.1), ("fraction", 0.0), ("fraction", 1.1)],
)
def test_values_out_of_range(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        MoFO([nn.Parameter(torch.zeros(1))], **{option: value})
