"""Half-precision parameters: what rounding discards is no path, and sums are kept in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln.curvature.kfac import damped_inverse, precondition_gradients
from tmln.curvature.kfac_factors import Factors
from tmln.optim import OCAR, TMLN, UPGD

HALVES = [torch.bfloat16, torch.float16]
D = torch.float64


def parameter(values: list[float], dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=dtype))


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)


# -- TMLN ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("looking", [False, True])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"weight_decay": 1e-5}, {"foreach": False}], ids=str)
@pytest.mark.parametrize("dtype", HALVES)
def test_a_weight_that_did_not_move_has_no_path(dtype: torch.dtype, options: dict[str, Any], looking: bool) -> None:
    # 1024 +- 0.2 is 1024 in both types; the second weight moves by 0.125 exactly
    p = parameter([1024.0, 0.0], dtype)
    optimizer = TMLN([p], lr=0.125, damping=1.0, **options)
    p.grad = torch.tensor([1.5, -1.0], dtype=dtype)
    if looking:
        optimizer.after_backward()
    optimizer.step()
    if looking:
        optimizer.after_update()
    assert p.tolist() == [1024.0, 0.125]
    assert optimizer.path(p).tolist() == [0.0, 0.125]
    optimizer.consolidate([torch.zeros(2)])
    assert optimizer.state[p]["sensitivity"].tolist() == [0.0, 1.0]


def test_between_look_and_walk_half_precision_counts_all_moves() -> None:
    p = parameter([0.0, 0.0], torch.bfloat16)
    optimizer = TMLN([p], lr=0.25, damping=0.5)
    p.grad = torch.tensor([2.0, -1.0], dtype=torch.bfloat16)
    optimizer.after_backward()
    p.grad += 1.0
    optimizer.step()
    assert p.tolist() == [-1.5, 0.0]
    with torch.no_grad():
        p.add_(0.5)
    optimizer.after_update()
    assert optimizer.path(p).tolist() == [2.0, 0.5]


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"maximize": True, "weight_decay": 0.1}], ids=str)
@pytest.mark.parametrize("dtype", HALVES)
def test_the_path_is_that_of_the_rounded_displacement(dtype: torch.dtype, options: dict[str, Any]) -> None:
    source = torch.Generator().manual_seed(0)
    p = nn.Parameter(torch.randn(50, generator=source).to(dtype))
    optimizer = TMLN([p], lr=0.01, **options)
    omega = torch.zeros(50, dtype=D)
    for k in range(20):
        optimizer.param_groups[0]["damping"] = 0.1 if k < 10 else 0.2
        g = torch.randn(50, generator=source).to(dtype)
        before = p.detach().double()
        p.grad = g.clone()
        optimizer.step()
        omega -= (-1 if options.get("maximize") else 1) * g.double() * (p.detach().double() - before)
    close(optimizer.path(p), omega)
    assert optimizer.path(p).dtype == torch.float32


def test_a_step_is_rounded_once() -> None:
    source = torch.Generator().manual_seed(0)
    start, g = torch.randn(2, 200, generator=source).bfloat16()
    for decay in (0.0, 0.3):
        p = nn.Parameter(start.clone())
        p.grad = g.clone()
        TMLN([p], lr=0.1, damping=0.7, weight_decay=decay).step()
        exact = start.double() - 0.1 / 0.7 * (g.double() + decay * start.double())
        assert (p != exact.float().bfloat16()).sum() <= 1  # a tie may fall to either side


@pytest.mark.parametrize("dtype", HALVES)
def test_momentum_is_kept_in_float32(dtype: torch.dtype) -> None:
    p = parameter([0.0, 0.0], dtype)
    optimizer = TMLN([p], lr=1e-3, momentum=0.99)
    exact = torch.zeros(2, dtype=D)
    for _ in range(300):
        p.grad = torch.tensor([1.0, 0.01], dtype=dtype)
        exact = 0.99 * exact + p.grad.double()
        optimizer.step()
    velocity = optimizer.state[p]["momentum_buffer"]
    assert velocity.dtype == torch.float32
    close(velocity, exact, 1e-5)
    other = parameter([0.0, 0.0], dtype)
    loaded = TMLN([other], lr=1e-3, momentum=0.99)
    loaded.load_state_dict(optimizer.state_dict())
    assert torch.equal(loaded.state[other]["momentum_buffer"], velocity)


def test_beside_half_precision_full_precision_is_as_alone() -> None:
    start = torch.linspace(-1, 1, 5)
    alone, beside, half = (nn.Parameter(start.clone().to(t)) for t in (torch.float32, torch.float32, torch.bfloat16))
    one, both = TMLN([alone], momentum=0.9), TMLN([half, beside], momentum=0.9)
    for k in range(4):
        for p in (alone, beside, half):
            p.grad = torch.full_like(p, 0.3 + k)
        one.step()
        both.step()
    assert torch.equal(alone, beside)
    assert torch.equal(one.path(alone), both.path(beside))
    assert torch.equal(one.state[alone]["raw_path"], both.state[beside]["raw_path"])
    assert "path" not in both.state[beside]
    assert not both.state[half]["raw_path"].any()
    assert (both.path(half) != 0).all()


def test_no_path_yet_is_zero_in_float32() -> None:
    p = parameter([1.0], torch.bfloat16)
    assert TMLN([p]).path(p).dtype == torch.float32


# -- UPGD ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", HALVES)
def test_utilities_are_kept_in_float32(dtype: torch.dtype) -> None:
    """In bfloat16 the trace stops where (1-beta)*u is half a unit in the last place: far from its mean."""
    source = torch.Generator().manual_seed(0)
    p = nn.Parameter(torch.randn(30, generator=source).to(dtype))
    optimizer = UPGD([p], lr=0.01, beta_utility=0.999, sigma=0.0)
    utility = torch.zeros(30, dtype=D)
    for _ in range(400):
        g = torch.randn(30, generator=source).to(dtype)
        utility = 0.999 * utility - 0.001 * g.double() * p.detach().double()
        p.grad = g.clone()
        optimizer.step()
    assert optimizer.state[p]["utility"].dtype == torch.float32
    close(optimizer.state[p]["utility"], utility, 1e-5)
    assert p.dtype == dtype


def _laid_out(matrix: Tensor, order: tuple[int, int]) -> Tensor:
    return matrix.permute(order).contiguous().permute(order)


@pytest.mark.parametrize("options", [{}, {"protecting": False}, {"variant": "local", "weight_decay": 0.1}], ids=str)
@pytest.mark.parametrize("dtype", HALVES)
def test_upgd_moves_as_in_float32_and_rounds_once(dtype: torch.dtype, options: dict[str, Any]) -> None:
    source = torch.Generator().manual_seed(0)
    start, g = torch.randn(2, 6, 4, generator=source).to(dtype)
    for order in ((0, 1), (1, 0)):
        half, full = (nn.Parameter(_laid_out(start.to(t), order)) for t in (dtype, torch.float32))
        half.grad, full.grad = _laid_out(g, order), _laid_out(g.float(), order)
        UPGD([half], lr=0.1, **options).step()
        UPGD([full], lr=0.1, **options).step()
        assert torch.equal(half, full.to(dtype))
        assert half.stride() == full.stride()


def test_a_loaded_utility_stays_in_float32() -> None:
    p, q = (parameter([1.0, -0.3], torch.bfloat16) for _ in range(2))
    first, second = UPGD([p], lr=0.01), UPGD([q], lr=0.01)
    for _ in range(3):
        p.grad = torch.tensor([-0.7, 0.9], dtype=torch.bfloat16)
        first.step()
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.state[q]["utility"], first.state[p]["utility"])
    assert second.state[q]["utility"].dtype == torch.float32
    assert second.state[q]["utility"] is not first.state[p]["utility"]
    assert second.state[q]["step"] == 3


def test_a_utility_saved_in_half_precision_still_loads() -> None:
    p = parameter([1.0, -0.3], torch.bfloat16)
    optimizer = UPGD([p])
    p.grad = torch.ones_like(p)
    optimizer.step()
    saved = optimizer.state_dict()
    saved["state"][0]["utility"] = saved["state"][0]["utility"].bfloat16()
    optimizer.load_state_dict(saved)
    assert optimizer.state[p]["utility"].dtype == torch.float32
    optimizer.step()


# -- OCAR ------------------------------------------------------------------------------------------------------------


def test_factors_and_inverses_are_float32() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).bfloat16()
    optimizer = OCAR(model, lr=0.01)
    x = torch.randn(16, 4).bfloat16()
    optimizer.observe(x)
    found = [*optimizer.kfac.factors.values(), *optimizer.kfac.inverses.values()]
    assert {factor.dtype for pair in found for factor in pair} == {torch.float32}
    optimizer.load_state_dict(optimizer.state_dict())
    found = [*optimizer.kfac.factors.values(), *optimizer.kfac.inverses.values()]
    assert {factor.dtype for pair in found for factor in pair} == {torch.float32}
    model(x).float().square().mean().backward()
    optimizer.step()
    assert all(p.dtype == torch.bfloat16 and p.isfinite().all() for p in model.parameters())


def test_a_direction_is_computed_in_float32_and_rounded_once() -> None:
    """An inverse rounded to 8 bits leaves errors of a percent and more where its large entries cancel."""
    source = torch.Generator().manual_seed(0)
    a, g = (torch.randn(40, n, generator=source) for n in (9, 5))
    inverse = damped_inverse(Factors(a.T @ a / 40, g.T @ g / 40), 1e-4)
    weight, bias = torch.randn(5, 8, generator=source).bfloat16(), torch.randn(5, generator=source).bfloat16()
    exact = precondition_gradients(inverse, [weight.float(), bias.float()])
    for half, full in zip(precondition_gradients(inverse, [weight, bias]), exact, strict=True):
        assert half.dtype == torch.bfloat16
        assert torch.equal(half, full.bfloat16())
