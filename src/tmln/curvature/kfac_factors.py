"""Kronecker factors of a model on a batch: one forward pass for A, one backward pass per label for G."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tmln.curvature.kfac_layers import Layer, at_least_single, factor_sizes, input_gram, kfac_layers, output_gram
from tmln.curvature.ranks import Ranks
from tmln.curvature.untouched import untouched

FISHERS = ("mc", "exact", "empirical")


class Factors(NamedTuple):
    """F of a layer's [W|b] is approximated by the Kronecker product of G (``output``) and A (``input``)."""

    input: Tensor
    output: Tensor


class Among(NamedTuple):
    """A batch's place in a larger one: samples before it, and samples in all."""

    before: int
    total: int


@dataclass
class _Sums:
    """What the hooks collect for one layer: sums over samples, positions and calls."""

    input: Tensor | None = None
    output: Tensor | None = None
    rows: int = 0


def kfac_factors(
    model: nn.Module,
    inputs: Tensor,
    *,
    targets: Tensor | None = None,
    weights: Tensor | None = None,
    fisher: str = "mc",
    generator: torch.Generator | None = None,
    among: Among | None = None,
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
    one process would have drawn for them. The model runs in the mode it is in and is left
    untouched; under batch norm in training mode g contains, as in the reference, the other samples' share.
    """
    if fisher not in FISHERS:
        raise ValueError(f"fisher={fisher!r} is unknown; choose one of {', '.join(FISHERS)}")
    layers = kfac_layers(model)
    sums = {name: _Sums() for name in layers}
    roots: list[Tensor] = []
    with untouched(model), torch.enable_grad():
        # g needs activations only: without weight gradients the pass skips a third of the work.
        for p in model.parameters():
            p.requires_grad_(False)
        logits = _recorded_forward(model, inputs.detach(), layers, sums, roots)
        _check_batch(logits, targets, weights, fisher)
        if logits.requires_grad:
            objectives = list(_objectives(logits, targets, weights, fisher, generator, among))
            for index, objective in enumerate(objectives):
                more = index + 1 < len(objectives)
                torch.autograd.grad(objective, roots, retain_graph=more, allow_unused=True)
    samples = len(inputs)
    return {
        name: Factors(collected.input / samples, collected.output / collected.rows)
        for name, collected in sums.items()
        if collected.input is not None and collected.output is not None
    }


def mean_factors(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    fisher: str = "empirical",
    generator: torch.Generator | None = None,
) -> dict[str, Factors]:
    """Factors of all ``batches`` of (inputs, targets) as of one, in eval mode: each counts by its samples.

    >>> x, y = torch.randn(6, 3), torch.zeros(6, dtype=torch.long)
    >>> model = nn.Linear(3, 2)
    >>> whole, pieces = mean_factors(model, [(x, y)]), mean_factors(model, [(x[:2], y[:2]), (x[2:], y[2:])])
    >>> torch.allclose(whole[""].input, pieces[""].input)
    True
    """
    return counted_factors(model, batches, fisher=fisher, generator=generator)[0]


def counted_factors(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], *, fisher: str, generator: torch.Generator | None
) -> tuple[dict[str, Factors], dict[str, int]]:
    """:func:`mean_factors`, and of how many samples each layer's are."""
    means: dict[str, Factors] = {}
    counts: dict[str, int] = {}
    with untouched(model, training=False):
        for inputs, targets in batches:
            found = kfac_factors(model, inputs, targets=targets, fisher=fisher, generator=generator)
            for name, new in found.items():
                counts[name] = counts.get(name, 0) + len(inputs)
                if name in means:
                    share = len(inputs) / counts[name]
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
    told = ranks.heard(lambda: counts)
    totals = {name: sum(rank.get(name, 0) for rank in told) for name in layers}
    found: dict[str, Factors] = {}
    for name in (name for name, total in totals.items() if total):
        weight = layers[name].weight
        dtype = at_least_single(weight.detach()).dtype
        own = factors.get(name) or Factors(*(weight.new_zeros(n, n, dtype=dtype) for n in factor_sizes(layers[name])))
        share = counts.get(name, 0) / totals[name]
        found[name] = Factors(*(ranks.sum_(factor.detach().mul(share)) for factor in own))
    return found


def sampled_labels(logits: Tensor, generator: torch.Generator | None, among: Among | None = None) -> Tensor:
    """One label per row from softmax(logits), by inverting a uniform number; on the CPU for any device."""
    before, total = among or Among(0, len(logits))
    cumulative = torch.softmax(logits.cpu(), 1, dtype=torch.float64).cumsum(1)
    uniform = torch.rand(total, 1, dtype=torch.float64, generator=generator)[before : before + len(logits)]
    # Rounding may leave the sum below 1: the rest is the last class's that adds to it, for those behind are closed.
    last = (cumulative < cumulative[:, -1:]).sum(1)
    return torch.minimum((uniform >= cumulative).sum(1), last)


def _objectives(
    logits: Tensor,
    targets: Tensor | None,
    weights: Tensor | None,
    fisher: str,
    generator: torch.Generator | None,
    among: Among | None,
) -> Iterator[Tensor]:
    """sum_n sqrt(w_n pi_nc) log p_nc for each label c: their gradients, squared and summed, give G."""
    log_probabilities = torch.log_softmax(at_least_single(logits), 1)
    ones = torch.ones_like(log_probabilities[:, 0])
    scale = ones if weights is None else weights.detach().to(ones).sqrt()
    if fisher == "exact":
        half = log_probabilities.detach().div(2).exp()
        log_probabilities = log_probabilities.masked_fill(half == 0.0, 0.0)  # a closed class: 0 log 0 = 0
        for c in half.any(0).nonzero().flatten().tolist():
            yield (scale * half[:, c] * log_probabilities[:, c]).sum()
        return
    if fisher == "mc":
        targets = sampled_labels(logits.detach(), generator, among)
    assert targets is not None
    yield (scale * log_probabilities.gather(1, targets.to(logits.device).unsqueeze(1)).squeeze(1)).sum()


def _recorded_forward(
    model: nn.Module, inputs: Tensor, layers: dict[str, Layer], sums: dict[str, _Sums], roots: list[Tensor]
) -> Tensor:
    """``model(inputs)``, each layer's input recorded in ``sums``, its output made to report its gradient."""
    handles = [
        layer.register_forward_hook(_recorder(layer, sums[name], roots), with_kwargs=True)
        for name, layer in layers.items()
    ]
    try:
        logits: Tensor = model(inputs)
        return logits
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


def _check_batch(logits: Tensor, targets: Tensor | None, weights: Tensor | None, fisher: str) -> None:
    if logits.dim() != 2:
        raise ValueError(f"the model's output has shape {tuple(logits.shape)}; K-FAC needs logits [samples, classes]")
    if fisher == "empirical" and (targets is None or targets.shape != logits.shape[:1]):
        got = "none" if targets is None else f"shape {tuple(targets.shape)}"
        raise ValueError(f"fisher='empirical' needs targets of shape ({len(logits)},), got {got}")
    if weights is not None:
        if weights.shape != logits.shape[:1]:
            raise ValueError(f"weights has shape {tuple(weights.shape)}; one per sample is ({len(logits)},)")
        if not bool(((weights >= 0) & weights.isfinite()).all()):
            raise ValueError("weights contains a negative or non-finite value; sample weights must be at least 0")
