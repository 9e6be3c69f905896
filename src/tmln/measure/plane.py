"""Planes in weight space: through a run's start and two solutions, or filter-normalised random (Li et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tmln.seeds import seed_of

PARALLEL = 1e-6  # of a move's length: less off the first direction is rounding of single-precision weights
SMALL = 1e-10  # Li et al.'s guard against a filter drawn as zero


@dataclass(frozen=True)
class Projected:
    """Coordinates in a plane, how far off it the weights are, and how far from its origin."""

    x: float
    y: float
    residual: float
    distance: float


@dataclass(frozen=True, eq=False)
class Plane:
    """``origin + x * first + y * second``: vectors of all weights in double precision."""

    origin: Tensor
    first: Tensor
    second: Tensor

    def at(self, x: float, y: float) -> Tensor:
        """origin + x * first + y * second: all weights, as one vector."""
        return self.origin.add(self.first, alpha=x).add_(self.second, alpha=y)

    def project(self, weights: Tensor) -> Projected:
        """The nearest point of the plane; its directions need be neither of length 1 nor at right angles."""
        move = weights - self.origin
        axes = torch.stack([self.first, self.second])
        place = torch.linalg.solve(axes @ axes.T, axes @ move)
        return Projected(float(place[0]), float(place[1]), float((move - place @ axes).norm()), float(move.norm()))


def task_plane(start: Tensor, first: Tensor, second: Tensor) -> Plane:
    """Of the start and the solutions of two tasks: u along first - start, v along the part of second - first off u.

    Both have length 1, so coordinates are distances: the start is (0, 0), the first solution (|first - start|, 0).
    """
    u, move = first - start, second - first
    if not bool(torch.isfinite(u).all() and torch.isfinite(move).all()):
        raise ValueError("weights are not finite, so there is no plane through them")
    if not float(u.norm()):
        raise ValueError("the first task did not move the weights, so there is no plane: train longer or faster")
    u = u / u.norm()
    v = move - (move @ u) * u
    v = v - (v @ u) * u  # once more: what rounding left
    if float(v.norm()) <= PARALLEL * float(move.norm()):
        how = "only along the line of the first" if float(move.norm()) else "not at all"
        raise ValueError(f"the second task moved the weights {how}, so there is no plane; --mode random needs none")
    return Plane(start, u, v / v.norm())


def random_plane(parameters: Sequence[Tensor], seed: int = 0) -> Plane:
    """Around these weights, along two Gaussian directions whose filters have the norms of the weights' own.

    A filter is what makes one output: a slice of the first dimension. Vectors (biases, batch norm) do not move.
    """
    axes = []
    for number in (1, 2):
        generator = torch.Generator().manual_seed(seed_of(seed, f"landscape direction {number}"))
        drawn = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in parameters]
        axes.append(torch.cat([_like_filters(d, p).reshape(-1) for d, p in zip(drawn, parameters, strict=True)]))
    if not all(float(axis.norm()) for axis in axes):
        raise ValueError("the model has no weights of two or more dimensions that are not zero: no random directions")
    return Plane(torch.cat([p.reshape(-1).double() for p in parameters]), axes[0], axes[1])


def _like_filters(direction: Tensor, weights: Tensor) -> Tensor:
    if weights.dim() < 2:
        return torch.zeros_like(direction)
    rows, own = direction.flatten(1), weights.double().flatten(1)
    scale: Tensor = own.norm(dim=1) / (rows.norm(dim=1) + SMALL)
    return (rows * scale[:, None]).view(weights.shape)


def mixture(point: tuple[float, float], corners: Sequence[tuple[float, float]]) -> list[float]:
    """Shares of a triangle's corners in a point: exact within, and never negative outside."""
    places = torch.tensor([[x, y, 1.0] for x, y in corners], dtype=torch.float64).T
    shares = torch.linalg.solve(places, torch.tensor([*point, 1.0], dtype=torch.float64)).clamp_(min=0.0)
    return [float(share) for share in shares / shares.sum()]
