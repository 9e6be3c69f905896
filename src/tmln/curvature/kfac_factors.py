"""Kronecker factors of a model on a batch: one forward pass for A, one backward pass per label for G."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tmln.curvature.batches import Batch, call_model, read_batch
from tmln.curvature.kfac_layers import Layer, at_least_single, factor_sizes, input_gram, kfac_layers, output_gram
from tmln.curvature.kfac_objectives import FISHERS, Among, objectives
from tmln.curvature.likelihoods import LogLikelihood
from tmln.curvature.preserve_state import preserve_model
from tmln.distributed.process_group import Ranks

Inputs = Tensor | Mapping[str, Any]  # of one argument, or by name, the targets perhaps among them


class Factors(NamedTuple):
    """F of a layer's [W|b] is approximated by the Kronecker product of G (``output``) and A (``input``)."""

    input: Tensor
    output: Tensor


@dataclass
class _Sums:
    """What the hooks collect for one layer: sums over samples, positions and calls."""

    input: Tensor | None = None
    output: Tensor | None = None
    rows: int = 0


def batch_of(inputs: Inputs, targets: Any = None) -> Batch:
    """``model(inputs)``, or ``model(**inputs)`` of a mapping, scored against the targets, or those in the mapping."""
    if isinstance(inputs, Tensor):
        return Batch((inputs,), {}, targets, len(inputs))
    if not isinstance(inputs, Mapping):
        raise TypeError(f"K-FAC takes a tensor or a mapping of the model's arguments, not a {type(inputs).__name__}")
    found = read_batch(inputs, labelled=False)
    return found if targets is None else replace(found, target=targets)


def kfac_factors(
    model: nn.Module,
    inputs: Inputs,
    *,
    targets: Tensor | None = None,
    weights: Tensor | None = None,
    fisher: str = "mc",
    generator: torch.Generator | None = None,
    among: Among | None = None,
    log_likelihood: str | LogLikelihood | None = None,
) -> dict[str, Factors]:
    r"""Name -> factors of every layer of :func:`kfac_layers` that took part in ``model(inputs)``.

    With N samples, P positions per sample (of a convolution's output, of a sequence, or calls of one layer):

    .. math::
        A = \frac1N \sum_n \sum_p a_{np} a_{np}^\top, \qquad
        G = \frac1{NP} \sum_n w_n \sum_p \sum_c \pi_{nc}\, g_{ncp} g_{ncp}^\top, \quad
        g_{ncp} = \frac{\partial \log p_{nc}}{\partial s_{np}}

    ``fisher`` says how labels are weighed: "exact" takes every class with the model's own probability (one
    backward pass per class), "mc" one label drawn from it with ``generator`` (on the CPU), "empirical" the
    label in ``targets``. ``weights`` [N] are the w_n. Samples ``among`` those of other processes get the labels that
    one process would have drawn for them. ``log_likelihood`` is as in :func:`~tmln.curvature.diagonal_fisher`, p being
    that of all of a sample's outputs: "exact" takes an output at a time of "gaussian" and "bernoulli" ones, and cannot
    be had of "tokens"; a function has "empirical" factors alone. The model runs in the mode it is in and is left
    untouched; under batch norm in training mode g contains, as in the reference, the other samples' share.
    """
    if fisher not in FISHERS:
        raise ValueError(f"fisher={fisher!r} is unknown; choose one of {', '.join(FISHERS)}")
    batch = batch_of(inputs, targets)
    layers = kfac_layers(model)
    sums = {name: _Sums() for name in layers}
    roots: list[Tensor] = []
    with preserve_model(model), torch.enable_grad():
        # g needs activations only: without weight gradients the pass skips a third of the work.
        for p in model.parameters():
            p.requires_grad_(False)
        logits = _recorded_forward(model, batch, layers, sums, roots)
        attended = batch.kwargs.get("attention_mask")
        found = objectives(model, logits, batch.target, weights, fisher, generator, among, log_likelihood, attended)
        for index, objective in enumerate(found if logits.requires_grad else ()):
            torch.autograd.grad(objective, roots, retain_graph=index + 1 < len(found), allow_unused=True)
    return {
        name: Factors(collected.input / batch.size, collected.output / collected.rows)
        for name, collected in sums.items()
        if collected.input is not None and collected.output is not None
    }


def mean_factors(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    fisher: str = "empirical",
    generator: torch.Generator | None = None,
    log_likelihood: str | LogLikelihood | None = None,
) -> dict[str, Factors]:
    """Factors of all ``batches``, (inputs, targets) or mappings, as of one, in eval mode: each counts by its samples.

    >>> x, y = torch.randn(6, 3), torch.zeros(6, dtype=torch.long)
    >>> model = nn.Linear(3, 2)
    >>> whole, pieces = mean_factors(model, [(x, y)]), mean_factors(model, [(x[:2], y[:2]), (x[2:], y[2:])])
    >>> torch.allclose(whole[""].input, pieces[""].input)
    True
    """
    return counted_factors(model, batches, fisher, generator, log_likelihood)[0]


def counted_factors(
    model: nn.Module,
    batches: Iterable[Any],
    fisher: str,
    generator: torch.Generator | None,
    log_likelihood: str | LogLikelihood | None = None,
) -> tuple[dict[str, Factors], dict[str, int]]:
    """:func:`mean_factors`, and of how many samples each layer's are."""
    means: dict[str, Factors] = {}
    counts: dict[str, int] = {}
    with preserve_model(model, training=False):
        for raw in batches:
            inputs, targets = (raw, None) if isinstance(raw, Mapping) else raw
            size = batch_of(inputs, targets).size
            found = kfac_factors(
                model, inputs, targets=targets, fisher=fisher, generator=generator, log_likelihood=log_likelihood
            )
            for name, new in found.items():
                counts[name] = counts.get(name, 0) + size
                if name in means:
                    share = size / counts[name]
                    means[name].input.lerp_(new.input, share)
                    means[name].output.lerp_(new.output, share)
                else:
                    means[name] = new
    return means, counts


def factors_of_all(
    factors: dict[str, Factors], counts: dict[str, int], layers: dict[str, Layer], ranks: Ranks
) -> dict[str, Factors]:
    """The factors of all ranks' samples as of one batch, where each rank's are means over ``counts`` of them."""
    if ranks.size == 1:
        return factors
    told = ranks.gather_objects(lambda: counts)
    totals = {name: sum(rank.get(name, 0) for rank in told) for name in layers}
    found: dict[str, Factors] = {}
    for name in (name for name, total in totals.items() if total):
        weight = layers[name].weight
        dtype = at_least_single(weight.detach()).dtype
        own = factors.get(name) or Factors(*(weight.new_zeros(n, n, dtype=dtype) for n in factor_sizes(layers[name])))
        share = counts.get(name, 0) / totals[name]
        found[name] = Factors(*(ranks.sum_(factor.detach().mul(share)) for factor in own))
    return found


def _recorded_forward(
    model: nn.Module, batch: Batch, layers: dict[str, Layer], sums: dict[str, _Sums], roots: list[Tensor]
) -> Any:
    """The model's logits, each layer's input recorded in ``sums``, its output made to report its gradient."""
    handles = [
        layer.register_forward_hook(_recorder(layer, sums[name], roots), with_kwargs=True)
        for name, layer in layers.items()
    ]
    try:
        return call_model(model, batch.detached())
    finally:
        for handle in handles:
            handle.remove()


def _recorder(
    layer: Layer, sums: _Sums, roots: list[Tensor]
) -> Callable[[nn.Module, tuple[Tensor, ...], dict[str, Tensor], Tensor], Tensor]:
    """A forward hook that adds the input's part at once and the gradient's part when it comes back.

    At once, because what follows may overwrite the input in place, and because nothing is kept then.
    """

    def record(module: nn.Module, arguments: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor) -> Tensor:
        if not torch.is_grad_enabled():  # the model itself cuts this call off from the loss
            return output
        gram, rows = input_gram(layer, arguments[0] if arguments else named["input"])
        sums.input = gram if sums.input is None else sums.input.add_(gram)
        sums.rows += rows
        if not output.requires_grad:
            root = output.detach().requires_grad_()
            roots.append(root)
            output = root.clone()  # an in-place activation may follow, which a leaf would refuse
        output.register_hook(receive)
        return output

    def receive(gradient: Tensor) -> None:
        gram = output_gram(layer, gradient)
        sums.output = gram if sums.output is None else sums.output.add_(gram)

    return record
