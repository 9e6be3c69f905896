"""Planes: coordinates known exactly, projections against least squares, directions against their definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tmln.measure.landscape import Plane, compute_mixture, make_random_plane, make_task_plane


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_hand_computed_coordinates() -> None:
    start, first, second = vector(1, 1, 0), vector(4, 1, 0), vector(6, 5, 0)
    plane = make_task_plane(start, first, second)
    assert plane.first.tolist() == [1, 0, 0]
    assert plane.second.tolist() == [0, 1, 0]
    places = [plane.project(weights) for weights in (start, first, second)]
    assert [(place.x, place.y, place.residual) for place in places] == [(0, 0, 0), (3, 0, 0), (5, 4, 0)]
    off = plane.project(vector(3, 2, 7))
    assert (off.x, off.y, off.residual) == (2, 1, 7)
    assert off.distance == pytest.approx(math.sqrt(4 + 1 + 49))


numbers = st.lists(st.floats(-3, 3), min_size=6, max_size=6)


@settings(deadline=None)
@given(numbers, numbers, numbers)
def test_start_and_solutions_are_where_they_must_be(a: list[float], b: list[float], c: list[float]) -> None:
    start, first, second = vector(*a), vector(*b), vector(*c)
    u, move = first - start, second - first
    assume(u.norm() > 1e-2)
    across = move - (move @ u) / (u @ u) * u
    assume(across.norm() > 1e-2)
    plane = make_task_plane(start, first, second)
    axes = torch.stack([plane.first, plane.second])
    torch.testing.assert_close(axes @ axes.T, torch.eye(2, dtype=torch.float64))
    wanted = [(0.0, 0.0), (float(u.norm()), 0.0)]
    wanted.append((float(u.norm() + (move @ u) / u.norm()), float(across.norm())))
    for weights, (x, y) in zip((start, first, second), wanted, strict=True):
        place = plane.project(weights)
        assert (place.x, place.y, place.residual) == pytest.approx((x, y, 0.0), abs=1e-9)
        torch.testing.assert_close(plane.at(x, y), weights)


@settings(deadline=None)
@given(numbers, numbers, numbers)
def test_projection_is_least_squares(a: list[float], b: list[float], c: list[float]) -> None:
    axes = np.array([a, b]).T
    assume(np.linalg.svd(axes, compute_uv=False)[1] > 0.1)
    place = Plane(vector(*[1.0] * 6), vector(*a), vector(*b)).project(vector(*c))
    best, *_ = np.linalg.lstsq(axes, np.array(c) - 1.0, rcond=None)
    assert [place.x, place.y] == pytest.approx(best.tolist(), abs=1e-8)
    assert place.residual == pytest.approx(np.linalg.norm(axes @ best - (np.array(c) - 1.0)), abs=1e-8)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (vector(0, 0), vector(1, 1), "first task did not move"),
        (vector(2, 0), vector(5, 0), "only along the line of the first"),
        (vector(2, 0), vector(-5, 0), "only along the line of the first"),
        (vector(2, 0), vector(2, 0), "not at all"),
        (vector(2, 0), vector(math.nan, 0), "not finite"),
        (vector(math.inf, 0), vector(0, 0), "not finite"),
    ],
    ids=["no first move", "on", "back", "no second move", "nan", "inf"],
)
def test_without_a_plane_the_reason_is_said(first: Tensor, second: Tensor, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_task_plane(vector(0, 0), first, second)


def test_random_directions_have_the_norms_of_filters() -> None:
    torch.manual_seed(0)
    parameters = [torch.randn(4, 3, 2, 2), torch.randn(4), torch.randn(5, 4), torch.randn(5)]
    plane = make_random_plane(parameters)
    sizes = [p.numel() for p in parameters]
    assert torch.equal(plane.origin, torch.cat([p.reshape(-1) for p in parameters]).double())
    for axis in (plane.first, plane.second):
        conv, bias, linear, last = axis.split(sizes)
        assert not bias.any()
        assert not last.any()
        for moved, weights, filters in ((conv, parameters[0], 4), (linear, parameters[2], 5)):
            for number in range(filters):
                own = weights[number].double().norm()
                torch.testing.assert_close(moved.view(filters, -1)[number].norm(), own, rtol=1e-8, atol=0.0)
    assert abs(float(torch.cosine_similarity(plane.first, plane.second, 0))) < 0.5
    assert torch.equal(make_random_plane(parameters).first, plane.first)
    assert not torch.equal(make_random_plane(parameters, seed=1).first, plane.first)
    turned = [p.to(memory_format=torch.channels_last) if p.dim() == 4 else p for p in parameters]
    assert torch.equal(make_random_plane(turned).first, plane.first)


def test_random_directions_need_filters() -> None:
    with pytest.raises(ValueError, match="no random directions"):
        make_random_plane([torch.ones(3), torch.zeros(2, 2)])


TRIANGLE = [(0.0, 0.0), (4.0, 0.0), (6.0, 2.0)]


@pytest.mark.parametrize(
    ("point", "shares"),
    [
        ((0, 0), [1, 0, 0]),
        ((4, 0), [0, 1, 0]),
        ((6, 2), [0, 0, 1]),
        ((2, 0), [0.5, 0.5, 0]),
        ((5, 1), [0, 0.5, 0.5]),
        ((10 / 3, 2 / 3), [1 / 3, 1 / 3, 1 / 3]),
        ((-2, 0), [1, 0, 0]),
    ],
    ids=str,
)
def test_shares_of_corners(point: tuple[float, float], shares: list[float]) -> None:
    assert compute_mixture(point, TRIANGLE) == pytest.approx(shares, abs=1e-12)


@settings(deadline=None)
@given(st.floats(-100, 100), st.floats(-100, 100))
def test_shares_are_never_negative_and_whole_together(x: float, y: float) -> None:
    shares = compute_mixture((x, y), TRIANGLE)
    assert all(share >= 0.0 for share in shares)
    assert sum(shares) == pytest.approx(1.0)
