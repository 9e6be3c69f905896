"""A Gaussian of the features of every class, kept in place of samples.

S = U^T U + diag(v): ``full`` has d rows in U, ``low-rank`` the ``rank`` leading ones and the rest
of the variances in v, ``diagonal`` none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.methods.component import MemoryTerm
from tmln.methods.features import Features
from tmln.methods.task_context import TaskContext
from tmln.progress import track

Covariance = Literal["full", "diagonal", "low-rank"]
ROWS = 512  # samples of a class whose features are held at a time
JITTER = 1e-6  # times the mean variance, added to a full covariance, which few samples leave singular


class Gaussian(NamedTuple):
    """N(mean, U^T U + diag(variance)) of ``number`` samples; in float64 while it is computed."""

    number: float
    mean: Tensor  # [d]
    variance: Tensor  # v, [d]
    factor: Tensor  # U, [r, d]


def add_samples(old: Gaussian, features: Tensor, covariance: Covariance, rank: int) -> Gaussian:
    """Return the Gaussian of more samples: maximum likelihood, exact but for ``low-rank``.

    With n1 samples before and n2 new ones, delta the difference of the means and n = n1 + n2:
    S = (n1 S1 + n2 S2 + n1 n2 / n delta delta^T) / n.

    >>> empty = Gaussian(0.0, torch.zeros(1), torch.zeros(1), torch.zeros(0, 1))
    >>> found = add_samples(empty, torch.tensor([[1.0], [3.0]]), "diagonal", 0)
    >>> found.number, float(found.mean), round(float(found.variance), 6)
    (2.0, 2.0, 1.0)
    """
    x = features.double()
    mean, variance, factor = (value.double() for value in old[1:])
    before, new = old.number, float(len(x))
    total = before + new
    centre = x.mean(0)
    delta = centre - mean
    rows = torch.cat(
        [
            factor * (before / total) ** 0.5,
            (x - centre) / total**0.5,
            (delta * (before * new) ** 0.5 / total).unsqueeze(0),
        ]
    )
    variance = variance * (before / total)
    if covariance == "diagonal":
        variance, factor = variance + rows.square().sum(0), rows[:0]
    elif covariance == "full":
        spread = rows.T @ rows
        spread.diagonal().add_(variance)
        variance, factor = torch.zeros_like(variance), factor_spread(spread)
    else:
        factor = leading_rows(rows, rank)
        variance = (variance + rows.square().sum(0) - factor.square().sum(0)).clamp_min(0.0)
    return Gaussian(total, mean + delta * (new / total), variance, factor)


def factor_spread(spread: Tensor) -> Tensor:
    """Return U with U^T U = S, with a little of the identity where S is singular."""
    scale = float(spread.diagonal().mean())
    if scale == 0:
        return torch.zeros_like(spread)
    regular = spread.clone()
    regular.diagonal().add_(JITTER * scale)
    factor: Tensor = torch.linalg.cholesky(regular)
    return factor.T


def leading_rows(rows: Tensor, rank: int) -> Tensor:
    """Return ``rank`` rows U, of which U^T U is the best approximation of rows^T rows."""
    short = len(rows) <= rows.shape[1]
    values, vectors = torch.linalg.eigh(rows @ rows.T if short else rows.T @ rows)
    leading = vectors[:, -rank:]
    found = leading.T @ rows if short else leading.T * values[-rank:].clamp_min(0).sqrt().unsqueeze(1)
    return torch.cat([found, rows.new_zeros(rank - len(found), rows.shape[1])])


class ClassGaussians:
    """The Gaussians of all classes met, in float32, and draws from them.

    Args:
        covariance: what is kept of S.
        rank: rows of U for ``low-rank``.
        seed: of the draws.
    """

    def __init__(self, covariance: Covariance, rank: int, seed: int) -> None:
        self.covariance, self.rank = covariance, rank
        self.generator = torch.Generator().manual_seed(seed)
        self.labels: list[int] = []
        self.count = torch.zeros(0, dtype=torch.float64)
        self.mean, self.variance, self.factor = torch.zeros(0, 0), torch.zeros(0, 0), torch.zeros(0, 0, 0)

    def __len__(self) -> int:
        return len(self.labels)

    def add(self, label: int, features: Tensor) -> None:
        """Add samples of a class, [n, d]."""
        if label not in self.labels:
            self._add_class(label, features.shape[1])
        k = self.labels.index(label)
        old = Gaussian(float(self.count[k]), self.mean[k], self.variance[k], self.factor[k])
        new = add_samples(old, features, self.covariance, self.rank)
        self.count[k], self.mean[k], self.variance[k], self.factor[k] = new

    def _add_class(self, label: int, width: int) -> None:
        if self.labels and width != self.mean.shape[1]:
            raise ValueError(f"the layer has {width} features, but those of earlier classes {self.mean.shape[1]}")
        rows = {"full": width, "diagonal": 0, "low-rank": self.rank}[self.covariance]
        known = len(self.labels)
        self.labels.append(label)
        self.count = torch.cat([self.count, self.count.new_zeros(1)])
        shapes = {"mean": (width,), "variance": (width,), "factor": (rows, width)}
        for name, shape in shapes.items():
            old = getattr(self, name).view(known, *shape)
            setattr(self, name, torch.cat([old, old.new_zeros(1, *shape)]))

    def draw(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return a draw for each place in :attr:`labels`, [n, d], and the labels."""
        noise = torch.randn(len(places), self.mean.shape[1], generator=self.generator)
        found = self.mean[places] + noise * self.variance[places].sqrt()
        if self.factor.shape[1]:
            latent = torch.randn(len(places), self.factor.shape[1], generator=self.generator)
            for k in places.unique().tolist():  # one product a class: its U is not copied for every draw
                found[places == k] += latent[places == k] @ self.factor[k]
        return found, torch.tensor(self.labels)[places]

    def draw_any(self, count: int) -> tuple[Tensor, Tensor]:
        """Return draws of classes that are drawn evenly."""
        return self.draw(torch.randint(len(self.labels), (count,), generator=self.generator))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the Gaussians and of the generator's state."""
        tensors = {name: getattr(self, name).clone() for name in ("count", "mean", "variance", "factor")}
        return {"labels": list(self.labels), **tensors, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what :meth:`state_dict` returned."""
        self.labels = [int(label) for label in state["labels"]]
        for name in ("count", "mean", "variance", "factor"):
            setattr(self, name, state[name].detach().cpu().clone())
        self.generator.set_state(state["generator"].cpu())


@torch.no_grad()
def add_task(gaussians: ClassGaussians, features: Features, model: nn.Module, context: TaskContext) -> None:
    """Add a task's samples, passed once through the model in evaluation mode.

    Every process gets the features of all, so that all have the same Gaussians.
    """
    waiting: dict[int, list[Tensor]] = {}

    def flush(label: int) -> None:
        gaussians.add(label, torch.cat(waiting.pop(label)))

    with preserve_model(model, training=False):
        for x, y in track(context.samples(), "batches of features", total=context.batches_in_pass):
            rows = context.ranks.rows(len(y))
            inputs, _ = context.prepare_batch(x[rows], y[rows])
            own = features.extract(model, inputs)[1]
            found = context.ranks.gather_rows(own, len(y)).float().cpu()
            if not bool(found.isfinite().all()):
                raise FloatingPointError("features are not finite: look at the inputs, or lower lr")
            for label in y.unique().tolist():
                waiting.setdefault(label, []).append(found[y.cpu() == label])
                if sum(map(len, waiting[label])) >= ROWS:
                    flush(label)
    for label in sorted(waiting):
        flush(label)


def gaussian_terms(covariance: Covariance, rank: int) -> list[MemoryTerm]:
    """Return the memory of a component's ``gaussians``."""
    factor = {
        "full": [MemoryTerm("gaussians.factor", "d^2C")],
        "low-rank": [MemoryTerm("gaussians.factor", "dC", rank)],
        "diagonal": [MemoryTerm("gaussians.factor", "dC", 0)],
    }
    vectors = [MemoryTerm(f"gaussians.{name}", "dC") for name in ("mean", "variance")]
    return [*vectors, *factor[covariance], MemoryTerm("gaussians.count", "C", 2)]
