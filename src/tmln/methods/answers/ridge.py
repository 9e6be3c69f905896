"""Ridge regression by sums: its Cholesky factor, and two rules that choose lambda."""

from __future__ import annotations

import math
from contextlib import suppress

import torch
import torch.nn.functional as F
from torch import Tensor

from tmln.distributed.process_group import SINGLE, Ranks

GRID = tuple(10.0**k for k in range(-8, 9))  # of lambda
EXACT, PROBES = 256, 128
CONDITION = 1e5  # up to which single precision is enough to choose lambda
COLUMNS = 256  # of Q that are solved at a time
FREE = 0.02  # share of the squared labels and of the degrees of freedom, below which it is not


def factor_gram(gram: Tensor, ridge: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return the Cholesky factor of G + lambda I; it takes the memory of one copy of G."""
    regular = gram.to(dtype, copy=True).mT  # G is symmetric, and LAPACK reads columns
    regular.diagonal().add_(ridge)
    factor: Tensor = torch.linalg.cholesky(regular, out=regular)
    return factor


def solve_weights(factor: Tensor, targets: Tensor) -> Tensor:
    """Return W = A^-1 Q, some columns at a time; ``factor`` is the Cholesky factor of A."""
    weights = torch.empty_like(targets)
    for begin in range(0, targets.shape[1], COLUMNS):
        weights[:, begin : begin + COLUMNS] = torch.cholesky_solve(targets[:, begin : begin + COLUMNS], factor)
    return weights


def trace_probes(size: int) -> Tensor:
    """Return Z, [size, k], with tr(B) = tr(Z^T B Z) / k; above ``EXACT``, Hutchinson's estimate."""
    if size <= EXACT:
        return torch.eye(size, dtype=torch.float64).mul(math.sqrt(size))
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(2, (size, PROBES), generator=generator)
    return torch.where(signs > 0, 1.0, -1.0).double()


def cross_validation_terms(
    gram: Tensor, targets: Tensor, count: float, ridge: float, dtype: torch.dtype = torch.float64
) -> tuple[float, float]:
    """Return |Y - HY|^2 / N and 1 - tr(H) / N, Y being one-hot labels.

    With A = G + lambda I = L L^T: |Y - H Y|^2 = N - |L^-1 Q|^2 - lambda |W|^2 and
    tr(H) = M - lambda tr(A^-1), of which probes Z give tr(A^-1) = |L^-1 Z|^2 / k.
    """
    factor = factor_gram(gram, ridge, dtype)
    probes = trace_probes(len(gram)).to(dtype)
    z = torch.linalg.solve_triangular(factor, probes, upper=False)
    trace = len(gram) - ridge * sum_squares(z) / probes.shape[1]
    left = count
    for columns in targets.split(COLUMNS, 1):
        half = torch.linalg.solve_triangular(factor, columns.to(dtype), upper=False)
        weights = torch.linalg.solve_triangular(factor.mT, half, upper=True)
        left -= sum_squares(half) + ridge * sum_squares(weights)
    return left / count, 1 - trace / count


def sum_squares(value: Tensor) -> float:
    """Return the sum of squares, in double precision."""
    return float(torch.linalg.vector_norm(value, dtype=torch.float64)) ** 2


def cross_validation_error(gram: Tensor, targets: Tensor, count: float, ridge: float) -> float:
    """Return the generalised cross-validation error (|Y - HY|^2 / N) / (1 - tr(H) / N)^2.

    In single precision where that is enough. Infinite where rounding leaves nothing of either term.
    """
    try:
        if float(gram.diagonal().sum()) < CONDITION * ridge:
            error, free = cross_validation_terms(gram, targets, count, ridge, torch.float32)
            if min(error, free) > FREE:
                return error / free**2
        error, free = cross_validation_terms(gram, targets, count, ridge)
    except RuntimeError:
        return float("inf")
    return error / free**2 if free > 1e-6 and error > 1e-12 else float("inf")


def choose_ridge(gram: Tensor, targets: Tensor, count: float) -> float:
    """Return the lambda of the grid with the least error, going down from the largest that helps.

    The error has one minimum on real features; the search starts at the mean of the diagonal and
    moves to the better neighbour until there is none.
    """
    errors: dict[int, float] = {}

    def error(k: int) -> float:
        if not 0 <= k < len(GRID):
            return float("inf")
        if k not in errors:
            errors[k] = cross_validation_error(gram, targets, count, GRID[k])
        return errors[k]

    scale = float(gram.diagonal().mean())
    here = min(range(len(GRID)), key=lambda k: abs(GRID[k] - scale))
    while True:
        best = min((here, here - 1, here + 1), key=error)
        if best == here:
            if error(here) < float("inf") or here == len(GRID) - 1:
                return GRID[here]
            best = here + 1
        here = best


def choose_ridge_held_out(gram: Tensor, targets: Tensor, h: Tensor, y: Tensor, ranks: Ranks = SINGLE) -> float:
    """Return the lambda of the grid with the least squared error on samples not in the sums.

    Args:
        gram: G without the samples.
        targets: Q without the samples.
        h: random features of the samples, of which each process has its own.
        y: their labels.
        ranks: the processes.
    """
    errors = torch.full((len(GRID),), float("inf"), dtype=torch.float64)
    labels = F.one_hot(y, targets.shape[1]).double()
    for k, ridge in enumerate(GRID):
        with suppress(RuntimeError):  # not positive definite to rounding
            errors[k] = sum_squares(h @ solve_weights(factor_gram(gram, ridge), targets) - labels)
    return GRID[int(ranks.sum_(errors).argmin())]
