"""Per-sample gradients without rules: torch.func's vmap over a model or module, and a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from tmln.curvature.batches import SampleBatch, call_model, total_log_likelihood
from tmln.curvature.lazy_gradients import at_least_single, to_dense
from tmln.curvature.likelihoods import LogLikelihood
from tmln.curvature.square_sums import SQUARE, Magnitude


def _vectorise(function: Callable[..., Any], in_dims: Any) -> Callable[..., Any]:
    """Return the vmap of a function, with attention as plain matrix products, which vmap needs."""

    def run(*args: Any) -> Any:
        with sdpa_kernel(SDPBackend.MATH):
            return vmap(function, in_dims=in_dims)(*args)

    return run


def sample_dims(leaves: list[Any], size: int) -> list[int | None]:
    """Return 0 for each tensor that is as long as there are samples, None for all else."""
    return [0 if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == size else None for leaf in leaves]


def _add_sample_dim(leaves: list[Any], dims: list[int | None]) -> list[Any]:
    """Restore dim 0 of samples, which vmap removes and models expect."""
    return [leaf.unsqueeze(0) if dim == 0 else leaf for leaf, dim in zip(leaves, dims, strict=True)]


class VmapPass:
    """Sums of per-sample gradient magnitudes by ``torch.func``; raises if vmap fails."""

    def __init__(
        self, model: nn.Module, trainable: set[Tensor], score: LogLikelihood, size: Magnitude = SQUARE
    ) -> None:
        self.model, self.score, self.size = model, score, size
        self.names = {name: p for name, p in model.named_parameters() if p in trainable}
        self.fixed = {name: p.detach() for name, p in model.named_parameters() if p not in trainable}
        self.fixed |= dict(model.named_buffers())

    def __call__(self, batch: SampleBatch) -> dict[Tensor, Tensor]:
        return {p: self.size.of(at_least_single(value)).sum(0) for p, value in self.gradients(batch).items()}

    def gradients(self, batch: SampleBatch) -> dict[Tensor, Tensor]:
        """Return each parameter's gradients [samples, *shape]."""
        leaves, rows, form = batch.flatten()
        dims = [0 if has else None for has in rows]

        def log_likelihood(weights: dict[str, Tensor], sample: list[Any]) -> Tensor:
            args, kwargs, target = pytree.tree_unflatten(_add_sample_dim(sample, dims), form)
            wrapped = _Functional(self.model, weights | self.fixed)
            return total_log_likelihood(
                self.score, call_model(wrapped, SampleBatch(args, kwargs, target, 1, batch.by_sample)), target
            )

        weights = {name: p.detach() for name, p in self.names.items()}
        found: dict[str, Tensor] = _vectorise(grad(log_likelihood), (None, dims))(weights, leaves)
        return {self.names[name]: value for name, value in found.items()}


class _Functional(nn.Module):
    """A model that is called with the given weights."""

    def __init__(self, model: nn.Module, state: dict[str, Tensor]) -> None:
        super().__init__()
        self._inner = (model, state)  # in a tuple: the model is not to become a child

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        model, state = self._inner
        return functional_call(model, state, args, kwargs)


class LoopPass:
    """Sums of per-sample gradient magnitudes, one sample at a time: slow, but for every model."""

    def __init__(
        self, model: nn.Module, trainable: set[Tensor], score: LogLikelihood, size: Magnitude = SQUARE
    ) -> None:
        self.model, self.score, self.size = model, score, size
        self.parameters = [p for p in model.parameters() if p in trainable]

    def __call__(self, batch: SampleBatch) -> dict[Tensor, Tensor]:
        sums: dict[Tensor, Tensor] = {}
        for sample in batch.chunks(1):
            for p, gradient in self.gradients(sample):
                gradient = at_least_single(gradient)
                sums[p] = self.size.add_(sums[p], gradient) if p in sums else self.size.of(gradient)
        return sums

    def gradients(self, sample: SampleBatch) -> Iterator[tuple[Tensor, Tensor]]:
        """Return each parameter that reaches the output with its gradient, for one sample."""
        total = total_log_likelihood(self.score, call_model(self.model, sample), sample.target)
        found = torch.autograd.grad(total, self.parameters, allow_unused=True)
        return ((p, to_dense(g)) for p, g in zip(self.parameters, found, strict=True) if g is not None)


def module_gradients(
    module: nn.Module,
    trainable: set[Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    output_gradients: list[Tensor | None],
    dims: list[int | None],
) -> Iterator[tuple[Tensor, Tensor]]:
    """Return each trainable parameter of one module with its gradients [samples, *shape].

    ``dims`` are those of :func:`sample_dims` for the leaves of ``(args, kwargs)``.
    """
    names = {name: p for name, p in module.named_parameters() if p in trainable}
    leaves, form = pytree.tree_flatten((args, kwargs))
    leaves = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    received = [g for g in output_gradients if g is not None]

    def pull(sample: list[Any], cotangents: list[Tensor]) -> dict[str, Tensor]:
        inputs, keywords = pytree.tree_unflatten(_add_sample_dim(sample, dims), form)

        def run(weights: dict[str, Tensor]) -> list[Tensor]:
            outputs = pytree.tree_leaves(functional_call(module, weights, inputs, keywords))
            return [out for out, g in zip(outputs, output_gradients, strict=True) if g is not None]

        back: Any = vjp(run, {name: p.detach() for name, p in names.items()})[1]
        pulled: dict[str, Tensor] = back([g.unsqueeze(0) for g in cotangents])[0]
        return pulled

    gradients: dict[str, Tensor] = _vectorise(pull, (dims, 0))(leaves, received)
    return ((names[name], value) for name, value in gradients.items())
