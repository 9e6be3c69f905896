"""Kronecker-factored curvature (Martens and Grosse 2015): running factors and damped inverses."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tmln.curvature.kfac_factors import (
    FISHERS,
    BatchPlace,
    Factors,
    Inputs,
    count_factors,
    kfac_factors,
    reduce_factors,
    to_batch,
)
from tmln.curvature.kfac_layers import factor_sizes, kfac_layers, layer_parameters
from tmln.curvature.lazy_gradients import at_least_single
from tmln.curvature.likelihoods import Likelihood, LogLikelihood
from tmln.distributed.process_group import Group, is_sharded, ranks_of


def split_damping(factors: Factors) -> float:
    """Return pi = sqrt((tr A / dim A) / (tr G / dim G)), or 1 where a trace is zero."""
    mean_input = float(factors.input.diagonal().mean())
    mean_output = float(factors.output.diagonal().mean())
    return math.sqrt(mean_input / mean_output) if mean_input > 0.0 and mean_output > 0.0 else 1.0


def damped_inverse(factors: Factors, damping: float) -> Factors:
    """Compute (A + pi sqrt(tau) I)^-1 and (G + sqrt(tau)/pi I)^-1 in float64."""
    pi = split_damping(factors)
    return Factors(_invert(factors.input, pi * math.sqrt(damping)), _invert(factors.output, math.sqrt(damping) / pi))


def _invert(factor: Tensor, shift: float) -> Tensor:
    device = "cpu" if factor.device.type == "mps" else factor.device  # mps has no float64
    precise = factor.to(device, torch.float64, copy=True)
    precise.diagonal().add_(shift)
    triangle, failed = torch.linalg.cholesky_ex(precise)
    if int(failed) == 0:
        inverse = torch.cholesky_inverse(triangle)
    else:  # rounding made an eigenvalue negative; none can truly lie below the shift
        values, vectors = torch.linalg.eigh(precise)
        inverse = (vectors / values.clamp_min(shift)) @ vectors.T
    return inverse.to(factor)


def resize_factor(factor: Tensor, size: int) -> Tensor:
    """Return the factor with ``size`` rows and columns; added ones are zero, as of a closed class.

    >>> resize_factor(torch.tensor([[2.0]]), 2)
    tensor([[2., 0.],
            [0., 0.]])
    """
    if len(factor) == size:
        return factor
    made, kept = factor.new_zeros(size, size), min(size, len(factor))
    made[:kept, :kept] = factor[:kept, :kept]
    return made


def precondition_gradients(inverse: Factors, gradients: list[Tensor]) -> list[Tensor]:
    """Return G^-1 [dW|db] A^-1 for the gradients of a layer's weight and, if it has one, bias."""
    weight = gradients[0]
    matrix = weight.flatten(1)
    if len(gradients) == 2:
        matrix = torch.cat([matrix, gradients[1].unsqueeze(1)], 1)
    precise = at_least_single(matrix)
    precise = (inverse.output.to(precise.dtype) @ precise) @ inverse.input.to(precise.dtype)
    matrix = precise.to(matrix.dtype)
    columns = weight[0].numel()
    return [matrix[:, :columns].reshape(weight.shape), *matrix[:, columns:].unbind(1)]


class KFAC:
    """Running Kronecker factors of a model's layers, and their damped inverses.

    :meth:`update` averages a batch's factors into the running ones (the first are taken as they
    are); :meth:`measure` computes those of a whole memory, and :meth:`set_factors` replaces the
    running ones. :meth:`invert` computes and keeps the inverses, :meth:`precondition` applies them
    to ``.grad``. Layers without factors (batch norm, grouped convolutions, ...; see
    :func:`kfac_layers`) are left out of what it returns. A layer that is called several times in a
    pass has one pair of factors: calls count like positions.

    >>> model = nn.Linear(3, 2)
    >>> curvature = KFAC(model)
    >>> curvature.update(torch.ones(4, 3))
    >>> curvature.invert(damping=0.1)
    >>> model(torch.ones(4, 3)).sum().backward()
    >>> [tuple(direction.shape) for direction in curvature.precondition().values()]
    [(2, 3), (2,)]

    Args:
        model: the model.
        ema: share of the new in running factors.
        fisher: the labels of G: ``"mc"`` (drawn), ``"exact"`` (all) or ``"empirical"`` (given).
        seed: seed of drawn labels.
        group: where ``torch.distributed`` is initialised, factors are of all ranks' samples (of
            ``group``; ``"local"``: of this rank's), the same on each. Labels are drawn as one
            process would for the batches of all, rank after rank.
        log_likelihood: what the outputs are, as in :func:`tmln.diagonal_fisher`: "classes" unless
            given, or what a Hugging Face model does with its labels.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        ema: float = 0.14,
        fisher: str = "mc",
        seed: int = 0,
        group: Group = None,
        log_likelihood: str | LogLikelihood | None = None,
    ) -> None:
        if not 0.0 < ema <= 1.0:
            raise ValueError(f"ema={ema!r} of K-FAC must lie in (0, 1]: it is the share of the new factors")
        if fisher not in FISHERS:
            raise ValueError(f"fisher={fisher!r} of K-FAC is unknown; choose one of {', '.join(FISHERS)}")
        if any(is_sharded(p) for p in model.parameters()):
            raise TypeError(
                "K-FAC measures and inverts whole layers, and this model's lie in shards (FSDP2 or tensor parallel): "
                "use DistributedDataParallel, or TMLN, whose metric is a diagonal"
            )
        # A replica's own model: a pass to measure is none that DistributedDataParallel must know
        # of.
        self.model = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
        Likelihood(self.model, log_likelihood)  # a name that there is not is refused here
        self.log_likelihood = log_likelihood
        self.group = group
        self.ema = ema
        self.fisher = fisher
        self.layers = kfac_layers(self.model)
        if not self.layers:
            raise ValueError(
                "the model has no trainable Linear, Conv1d or Conv2d layer, so K-FAC has no factors; use SGD"
            )
        self.factors: dict[str, Factors] = {}
        self.inverses: dict[str, Factors] = {}
        self.inverse_damping: float | None = None
        self.generator = torch.Generator().manual_seed(seed)

    def update(self, inputs: Inputs, *, targets: Tensor | None = None, weights: Tensor | None = None) -> None:
        """Average the factors of this batch into the running ones, and drop the inverses."""
        fresh = self._of_batch(inputs, targets, weights)
        _check_finite(fresh)
        for name, new in fresh.items():
            old = self.factors.get(name)
            if old is not None and (old.input.shape, old.output.shape) != (new.input.shape, new.output.shape):
                raise RuntimeError(
                    f"layer '{name}' has factors of sizes {(len(old.input), len(old.output))}, and now needs "
                    f"{(len(new.input), len(new.output))}: after replacing a layer call "
                    "optimizer.replace(old_parameter, new_parameter) for each of its parameters"
                )
        # Layers may have been frozen or released since: factors go and come with them.
        self.layers = kfac_layers(self.model)
        self.factors = {name: old for name, old in self.factors.items() if name in self.layers}
        for name, new in fresh.items():
            old = self.factors.get(name)
            if old is not None:
                # Into the new tensors, never the old: a state_dict() taken before keeps its values.
                # A factor of another size is of a layer that has grown: its average starts again.
                for average, before in zip(new, old, strict=True):
                    if average.shape == before.shape:
                        average.lerp_(before, 1.0 - self.ema)
            self.factors[name] = new
        self.inverses = {}
        self.inverse_damping = None

    def _of_batch(self, inputs: Inputs, targets: Tensor | None, weights: Tensor | None) -> dict[str, Factors]:
        """Return factors of the batch that the ranks have together."""
        ranks = ranks_of(self.group)
        size = to_batch(inputs, targets).size
        sizes = ranks.gather_objects(lambda: size)
        among = BatchPlace(sum(sizes[: ranks.rank]), sum(sizes))
        if ranks.size > 1 and not size:  # the draws of the others are drawn here, too
            if self.fisher == "mc":
                torch.rand(among.total, 1, dtype=torch.float64, generator=self.generator)
            fresh: dict[str, Factors] = ranks.run_together(dict)
        else:
            fresh = ranks.run_together(
                lambda: kfac_factors(
                    self.model,
                    inputs,
                    targets=targets,
                    weights=weights,
                    fisher=self.fisher,
                    generator=self.generator,
                    among=among,
                    log_likelihood=self.log_likelihood,
                )
            )
        return reduce_factors(fresh, dict.fromkeys(fresh, size), kfac_layers(self.model), ranks)

    def measure(self, batches: Iterable[Any]) -> dict[str, Factors]:
        """Compute factors of all these samples, of all ranks, in eval mode; running ones stay."""
        ranks, generator = ranks_of(self.group), self.generator
        if ranks.size > 1:  # which may have more batches than another: all go on from the same state
            seed = int(torch.randint(2**62, (), generator=self.generator))
            generator = torch.Generator().manual_seed(seed + ranks.rank)
        means, counts = ranks.run_together(
            lambda: count_factors(self.model, batches, self.fisher, generator, self.log_likelihood)
        )
        found = reduce_factors(means, counts, kfac_layers(self.model), ranks)
        if not found:
            raise ValueError("K-FAC factors of no samples: give batches of (inputs, targets), of your memory, say")
        _check_finite(found)
        return found

    def set_factors(self, factors: dict[str, Factors]) -> None:
        """Replace the running factors, and drop the inverses."""
        self.layers = kfac_layers(self.model)
        self.factors = {name: new for name, new in factors.items() if name in self.layers}
        self.inverses = {}
        self.inverse_damping = None

    def invert(self, damping: float) -> None:
        """Invert the running factors at ``damping`` (tau > 0) and keep the inverses."""
        if not 0.0 < damping < math.inf:
            raise ValueError(f"damping={damping!r} of K-FAC must be positive and finite: factors may be singular")
        self.inverses = {name: damped_inverse(factors, damping) for name, factors in self.factors.items()}
        self.inverse_damping = damping

    def resize(self) -> None:
        """Fit factors to layers of new sizes; new rows and columns are zero."""
        self.layers = kfac_layers(self.model)
        self.factors = {
            name: Factors(*(resize_factor(f, n) for f, n in zip(old, factor_sizes(self.layers[name]), strict=True)))
            for name, old in self.factors.items()
            if name in self.layers
        }
        if self.inverse_damping is not None:
            self.invert(self.inverse_damping)

    @torch.no_grad()
    def precondition(self, gradients: Mapping[Tensor, Tensor] | None = None) -> dict[Tensor, Tensor]:
        """Return parameter -> direction, for layers with factors and gradients of all parameters.

        ``gradients`` are ``.grad`` unless given.
        """
        directions: dict[Tensor, Tensor] = {}
        for name, inverse in self.inverses.items():
            parameters = layer_parameters(self.layers[name])
            own = [p.grad if gradients is None else gradients.get(p) for p in parameters]
            given = [gradient for gradient in own if gradient is not None]
            if len(given) == len(parameters) and self._fits(name):
                directions.update(zip(parameters, precondition_gradients(inverse, given), strict=True))
        return directions

    def covered_parameters(self, moving: Container[Tensor]) -> set[Tensor]:
        """Return the parameters among ``moving`` that :meth:`precondition` has directions for."""
        layers = (layer_parameters(self.layers[name]) for name in self.inverses if self._fits(name))
        return {p for layer in layers if all(q in moving for q in layer) for p in layer}

    def _fits(self, name: str) -> bool:
        """Return whether the layer still has the sizes of its factors, and a single dtype."""
        layer, (a, g) = self.layers[name], self.inverses[name]
        alike = len({p.dtype for p in layer_parameters(layer)}) == 1
        return alike and factor_sizes(layer) == (len(a), len(g))

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the process group, which cannot be copied."""
        return {**self.__dict__, "group": self.group if self.group == "local" else None}

    def state_dict(self) -> dict[str, Any]:
        """Return factors, generator and damping; inverses are computed again when loaded."""
        return {
            "factors": {name: factors._asdict() for name, factors in self.factors.items()},
            "inverse_damping": self.inverse_damping,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where ``state`` was taken; names and shapes of layers must agree."""
        self.layers = kfac_layers(self.model)
        factors: dict[str, Factors] = {}
        for name, saved in state["factors"].items():
            if name not in self.layers:
                raise ValueError(
                    f"the state has factors of layer '{name}', which this model lacks; load it into its own"
                )
            expected = factor_sizes(self.layers[name])
            found = (len(saved["input"]), len(saved["output"]))
            if found != expected:
                raise ValueError(f"factors of layer '{name}' have sizes {found}, this model needs {expected}")
            device = self.layers[name].weight.device
            factors[name] = Factors(saved["input"].to(device), saved["output"].to(device))
        self.factors = factors
        self.inverses = {}
        self.inverse_damping = None
        if state["inverse_damping"] is not None:
            self.invert(state["inverse_damping"])
        self.generator.set_state(state["generator"].cpu())


def _check_finite(factors: Mapping[str, Factors]) -> None:
    for name, found in factors.items():
        for kind, factor in zip(("input", "output"), found, strict=True):
            if not bool(factor.isfinite().all()):
                raise FloatingPointError(
                    f"the {kind} factor of layer '{name}' is not finite: training has diverged; "
                    "lower lr or raise damping"
                )
