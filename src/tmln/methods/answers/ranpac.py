"""RanPAC (McDonnell et al. 2023): ridge regression on random features of the backbone's features.

h = relu(f R) with R ~ N(0, 1), G = sum h h^T, Q = sum h onehot(y)^T, W = (G + lambda I)^-1 Q. The
paper chooses lambda by the error on a fifth of the newest task (``choice="held-out"``). Unless
asked for that, generalised cross-validation does (Golub, Heath & Wahba 1979), which is a function
of the sums: no sample is held out, and the order of tasks does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.distributed.process_group import SINGLE, Ranks
from tmln.methods import BuildContext, Guide, MemoryConditions, MemoryTerm
from tmln.methods.answers.closed_form import ClosedFormAnswer, ClosedFormSettings
from tmln.methods.answers.sums import FeatureBatch, add_gram_, grow_dim, join, sum_by_class

HELD_OUT = 5  # every fifth sample of a class; the authors have the last fifth of a shuffled task
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
    choice: Literal["gcv", "held-out"] = Field(
        "gcv",
        description="how lambda is chosen: by generalised cross-validation, a function of the sums; or, as RanPAC's"
        " authors do, by the error on a fifth of the newest task, so that the order of tasks matters",
        json_schema_extra={"later": True},
    )


def projection(features: int, width: int, seed: int) -> Tensor:
    """Return R, [features, width], the same for the same seed on every machine."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(features, width, generator=generator)


def expand(features: Tensor, matrix: Tensor) -> Tensor:
    """Return h = relu(f R).

    >>> expand(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, -1.0], [1.0, 0.0]]))
    tensor([[3., 0.]])
    """
    return (features @ matrix).relu()


def scores_left_out(h: Tensor, y: Tensor, weight: Tensor, factor: Tensor) -> Tensor:
    """Return h W of the head without each sample: y - (y - h W) / (1 - h^T A^-1 h).

    Args:
        h: random features of samples that are in the sums.
        y: their labels.
        weight: W.
        factor: the Cholesky factor of A = G + lambda I.
    """
    leverage = torch.linalg.solve_triangular(factor, h.T, upper=False).square().sum(0)
    residual: Tensor = h @ weight
    rows = torch.arange(len(y))
    residual[rows, y] -= 1
    residual = residual / (1 - leverage).clamp_min(1e-9).unsqueeze(1)
    residual[rows, y] += 1
    return residual


def select(batch: FeatureBatch, rows: Tensor) -> FeatureBatch:
    """Return some rows of a batch."""
    return FeatureBatch(batch.features[rows], batch.y[rows], batch.classes, batch.order[rows])


class RidgeHead(NamedTuple):
    """W, [M, classes]."""

    weight: Tensor


class RandomProjection(ClosedFormAnswer):
    """Ridge regression on relu of a random projection of the features."""

    name = "ranpac"
    Settings = RanPACSettings
    state_names: ClassVar[tuple[str, ...]] = (*ClosedFormAnswer.state_names, "seed", "chosen")
    class_dims: ClassVar[dict[str, int]] = {"counts": 0, "features": 0, "targets": 1}
    symmetric_sums: ClassVar[tuple[str, ...]] = ("gram",)
    active_settings: ClassVar[dict[str, Any]] = {"width": 64}
    guide = Guide(
        equation=r"W = (G + \lambda I)^{-1} Q, \quad G = \sum_i h_i h_i^\top, \; Q = \sum_i h_i e_{y_i}^\top,"
        r" \; h = \mathrm{relu}(\varphi(x) R)",
        origin="McDonnell et al. 2023.",
        cost="A pass over each task's samples; M^2 + M C numbers for M random features and C classes, and before "
        "the next prediction some five Cholesky factors of the M^2.",
        use="On a pre-trained backbone, with a hundred pictures of a class or more.",
        avoid="Where memory is short: `slda` has about the same accuracy with less.",
    )

    def __init__(self, settings: RanPACSettings, context: BuildContext) -> None:
        """Draw nothing yet: the projection follows from the seed when features are known."""
        super().__init__(settings, context)
        self.seed = context.seed
        self.matrix: Tensor | None = None
        self.chosen: float | None = None  # lambda, by the newest task

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        """Return G and Q, W, and the projection besides those of the base."""
        width = settings.width
        own = [MemoryTerm("sums", "numbers", 2 * width**2), MemoryTerm("sums", "C", 2 * width)]
        head = MemoryTerm("head", "C", 2 * width, derived=True)
        matrix = MemoryTerm("matrix", "d", width, derived=True)
        return [*(super().memory_terms(settings, conditions) or []), *own, head, matrix]

    def _expand(self, features: Tensor) -> Tensor:
        """Return h in float64, computed in the precision of the features."""
        if self.matrix is None or len(self.matrix) != features.shape[1]:
            self.matrix = projection(features.shape[1], self.settings.width, self.seed)
        return expand(features, self.matrix.to(features.dtype)).double()

    def add_own_sums(self, total: dict[str, Tensor], features: Tensor, y: Tensor) -> None:
        """Add G and Q."""
        h, width = self._expand(features), self.settings.width
        add_gram_(total.setdefault("gram", h.new_zeros(width, width)), h)
        targets = total.setdefault("targets", h.new_zeros(width, len(total["counts"])))
        classes, column = y.unique(return_inverse=True)
        targets[:, classes] += sum_by_class(h, column, len(classes)).T

    def sum_task(self, batches: Iterable[FeatureBatch], labels: list[int], ranks: Ranks) -> dict[str, Tensor]:
        """Return the task's sums; with ``held-out``, choose lambda by a fifth of its samples."""
        if self.settings.choice == "gcv" or self.settings.ridge is not None:
            return super().sum_task(batches, labels, ranks)
        held: list[FeatureBatch] = []

        def rest() -> Iterator[FeatureBatch]:
            for batch in batches:
                out = batch.order % HELD_OUT == HELD_OUT - 1
                held.append(select(batch, out))
                yield select(batch, ~out)

        total = super().sum_task(rest(), labels, ranks)
        last = join(held)
        if int(ranks.sum_(torch.tensor(len(last.y)))):
            before, columns = self.sums, max([*labels, len(self.counts) - 1]) + 1
            targets = before["targets"] if before else total["targets"][:, :0]
            targets = grow_dim(targets, 1, columns).index_add(1, torch.tensor(labels), total["targets"])
            gram = total["gram"] + before["gram"] if before else total["gram"]
            y = torch.tensor(labels)[last.y]
            self.chosen = choose_ridge_held_out(gram, targets, self._expand(last.features), y, ranks)
        for name, value in super().sum_task([last], labels, ranks).items():
            total[name] += value
        return total

    def solve(self) -> RidgeHead:
        """Return W; choose lambda and the temperature."""
        gram, targets = self.sums["gram"], self.sums["targets"]
        given = self.settings.ridge or (self.chosen if self.settings.choice == "held-out" else None)
        if "ridge" not in self.fitted:
            self.fitted["ridge"] = given or choose_ridge(gram, targets, float(self.counts.sum()))
        try:
            factor = factor_gram(gram, self.fitted["ridge"])
        except RuntimeError as error:
            raise ValueError(
                f"G of {self.counts.sum():.0f} samples cannot be inverted with answer.ridge = "
                f"{self.fitted['ridge']:g}: give a larger one"
            ) from error
        weight = solve_weights(factor, targets)
        features, y = self.calibration_samples()
        if len(y) and "inverse_temperature" not in self.fitted:
            left_out = scores_left_out(self._expand(features), y, weight, factor)
            self.fitted["inverse_temperature"] = self.fit_temperature(left_out, y)
        return RidgeHead(weight)

    def raw_scores(self, features: Tensor) -> Tensor:
        """Return h W."""
        found: Tensor = self._expand(features) @ self.solution.weight
        return found

    def linear_form(self) -> tuple[list[nn.Module], Tensor, Tensor]:
        """Return the random projection, and W."""
        weight, matrix = (
            self.solution.weight,
            projection(self.sums["features"].shape[1], self.settings.width, self.seed),
        )
        layer = nn.Linear(matrix.shape[0], matrix.shape[1], bias=False)
        with torch.no_grad():
            layer.weight.copy_(matrix.T)
        return [layer, nn.ReLU()], weight, weight.new_zeros(weight.shape[1])

    def load_state_dict(self, state: Any) -> None:
        """Load the state; the projection is drawn again from its seed."""
        super().load_state_dict({"chosen": None, **state})
        self.matrix = None
