"""RanPAC (McDonnell et al. 2023): ridge regression on random features of the backbone's features.

h = relu(f R) with R ~ N(0, 1), G = sum h h^T, Q = sum h onehot(y)^T, W = (G + lambda I)^-1 Q. The
paper chooses lambda by the error on a fifth of the newest task. Here generalised cross-validation
does (Golub, Heath & Wahba 1979), which is a function of the sums: no sample is held out, and the
order of tasks does not matter.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import BuildContext, Guide, MemoryConditions, MemoryTerm
from tmln.methods.answers.closed_form import ClosedFormAnswer, ClosedFormSettings

GRID = tuple(10.0**k for k in range(-8, 9))  # of lambda
EXACT, PROBES = 256, 128


class RanPACSettings(ClosedFormSettings):
    """Settings of ``ranpac``."""

    width: int = Field(
        2000,
        ge=1,
        description="random features M; the sums take 8 M^2 bytes, the paper has 10,000",
        json_schema_extra={"search": [1000, 2000, 5000]},
    )
    ridge: float | None = Field(
        None,
        gt=0,
        description="lambda; unless given, that of 1e-8 .. 1e8 with the least generalised cross-validation error",
        json_schema_extra={"search": [None, 1.0, 1e2, 1e4, 1e6]},
    )


def projection(features: int, width: int, seed: int) -> Tensor:
    """Return R, [features, width], the same for the same seed on every machine."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(features, width, generator=generator).double()


def expand(features: Tensor, matrix: Tensor) -> Tensor:
    """Return h = relu(f R).

    >>> expand(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, -1.0], [1.0, 0.0]]))
    tensor([[3., 0.]])
    """
    return (features @ matrix).relu()


def factor_gram(gram: Tensor, ridge: float) -> Tensor:
    """Return the Cholesky factor of G + lambda I."""
    regular = gram.clone()
    regular.diagonal().add_(ridge)
    factor: Tensor = torch.linalg.cholesky(regular)
    return factor


def trace_probes(size: int) -> Tensor:
    """Return Z, [size, k], with tr(B) = tr(Z^T B Z) / k; above ``EXACT``, Hutchinson's estimate."""
    if size <= EXACT:
        return torch.eye(size, dtype=torch.float64).mul(math.sqrt(size))
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(2, (size, PROBES), generator=generator)
    return torch.where(signs > 0, 1.0, -1.0).double()


def cross_validation_error(gram: Tensor, targets: Tensor, count: float, ridge: float) -> float:
    """Return the generalised cross-validation error (|Y - HY|^2 / N) / (1 - tr(H) / N)^2.

    Y are one-hot labels. With A = G + lambda I: |Y - H Y|^2 = N - tr(W^T Q) - lambda |W|^2 and
    tr(H) = tr(G A^-1). Infinite where rounding leaves nothing of either.
    """
    try:
        factor = factor_gram(gram, ridge)
    except RuntimeError:
        return float("inf")
    weights = torch.cholesky_solve(targets, factor)
    probes = trace_probes(len(gram))
    trace = float(((gram @ probes) * torch.cholesky_solve(probes, factor)).sum()) / probes.shape[1]
    free = 1 - trace / count
    error = (count - float((weights * targets).sum()) - ridge * float(weights.square().sum())) / count
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


class RandomProjection(ClosedFormAnswer):
    """Ridge regression on relu of a random projection of the features."""

    name = "ranpac"
    Settings = RanPACSettings
    state_names: ClassVar[tuple[str, ...]] = (*ClosedFormAnswer.state_names, "seed")
    class_dims: ClassVar[dict[str, int]] = {"counts": 0, "features": 0, "targets": 1}
    active_settings: ClassVar[dict[str, Any]] = {"width": 64}
    guide = Guide(
        equation=r"W = (G + \lambda I)^{-1} Q, \quad G = \sum_i h_i h_i^\top, \; Q = \sum_i h_i e_{y_i}^\top,"
        r" \; h = \mathrm{relu}(\varphi(x) R)",
        origin="McDonnell et al. 2023.",
        cost="A pass over each task's samples; M^2 + M C numbers for M random features and C classes, and a Cholesky "
        "factor of the M^2 some five times a task.",
        use="On a pre-trained backbone, with a hundred pictures of a class or more.",
        avoid="Where memory is short: `slda` has about the same accuracy with less.",
    )

    def __init__(self, settings: RanPACSettings, context: BuildContext) -> None:
        """Draw nothing yet: the projection follows from the seed when features are known."""
        super().__init__(settings, context)
        self.seed = context.seed
        self.matrix: Tensor | None = None

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        """Return G and Q, W and the factor of G, and the projection besides those of the base."""
        width = settings.width
        own = [MemoryTerm("sums", "numbers", 2 * width**2), MemoryTerm("sums", "C", 2 * width)]
        head = [replace(term, name="head", derived=True) for term in own]
        matrix = MemoryTerm("matrix", "d", 2 * width, derived=True)
        return [*(super().memory_terms(settings, conditions) or []), *own, *head, matrix]

    def _expand(self, features: Tensor) -> Tensor:
        if self.matrix is None or len(self.matrix) != features.shape[1]:
            self.matrix = projection(features.shape[1], self.settings.width, self.seed)
        return expand(features, self.matrix)

    def own_sums(self, features: Tensor, y: Tensor, classes: int) -> dict[str, Tensor]:
        """Return G and Q."""
        h = self._expand(features)
        targets = h.new_zeros(h.shape[1], classes).index_add_(1, y, h.T)
        return {"gram": h.T @ h, "targets": targets}

    def fit(self) -> None:
        """Choose lambda by generalised cross-validation."""
        gram, targets, count = self.sums["gram"], self.sums["targets"], float(self.counts.sum())
        self.fitted["ridge"] = self.settings.ridge or choose_ridge(gram, targets, count)

    def solve(self) -> tuple[Tensor, Tensor]:
        """Return W and the Cholesky factor of G + lambda I."""
        factor = factor_gram(self.sums["gram"], self.fitted["ridge"])
        return torch.cholesky_solve(self.sums["targets"], factor), factor

    def raw_scores(self, features: Tensor) -> Tensor:
        """Return h W."""
        found: Tensor = self._expand(features) @ self.solution[0]
        return found

    def linear_form(self) -> tuple[list[nn.Module], Tensor, Tensor]:
        """Return the random projection, and W."""
        weights, matrix = self.solution[0], projection(self.sums["features"].shape[1], self.settings.width, self.seed)
        layer = nn.Linear(matrix.shape[0], matrix.shape[1], bias=False)
        with torch.no_grad():
            layer.weight.copy_(matrix.T)
        return [layer, nn.ReLU()], weights, weights.new_zeros(weights.shape[1])

    def raw_scores_left_out(self, features: Tensor, y: Tensor) -> Tensor:
        """Return h W of the head without each sample: y - (y - h W) / (1 - h^T A^-1 h)."""
        weights, factor = self.solution
        h = self._expand(features)
        leverage = torch.linalg.solve_triangular(factor, h.T, upper=False).square().sum(0)
        residual: Tensor = h @ weights
        rows = torch.arange(len(y))
        residual[rows, y] -= 1
        residual = residual / (1 - leverage).clamp_min(1e-9).unsqueeze(1)
        residual[rows, y] += 1
        return residual

    def load_state_dict(self, state: Any) -> None:
        """Load the state; the projection is drawn again from its seed."""
        super().load_state_dict(state)
        self.matrix = None
