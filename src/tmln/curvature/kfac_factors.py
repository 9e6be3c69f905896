"""Kronecker factors of a model on a batch: A from a forward pass, G from backward passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tmln.curvature.batches import SampleBatch, call_model, read_batch
from tmln.curvature.kfac_layers import Layer, factor_sizes, input_gram, kfac_layers, output_gram
from tmln.curvature.lazy_gradients import at_least_single
from tmln.curvature.likelihoods import Likelihood, LogLikelihood
from tmln.curvature.preserve_state import preserve_model
from tmln.distributed.process_group import Ranks

# -- what is differentiated for G ----------------------------------------------------------------


FISHERS = ("mc", "exact", "empirical")


class BatchPlace(NamedTuple):
    """A batch's place in a larger one: samples before it, and samples in all."""

    before: int
    total: int


def sample_labels(logits: Tensor, generator: torch.Generator | None, among: BatchPlace | None = None) -> Tensor:
    """Draw one label per row from softmax(logits) by inverting a uniform number, on the CPU."""
    before, total = among or BatchPlace(0, len(logits))
    cumulative = torch.softmax(logits.cpu(), 1, dtype=torch.float64).cumsum(1)
    uniform = torch.rand(total, 1, dtype=torch.float64, generator=generator)[before : before + len(logits)]
    # Rounding may leave the sum below 1: the rest is the last class's that adds to it, for those
    # behind are closed.
    last = (cumulative < cumulative[:, -1:]).sum(1)
    return torch.minimum((uniform >= cumulative).sum(1), last)


def label_objectives(
    model: nn.Module,
    logits: Any,
    targets: Any,
    weights: Tensor | None,
    fisher: str,
    generator: torch.Generator | None,
    among: BatchPlace | None = None,
    log_likelihood: str | LogLikelihood | None = None,
    attended: Tensor | None = None,
) -> list[Tensor]:
    """Return scalars whose squared gradients add up to G: one, or for "exact" one a label."""
    likelihood = Likelihood(model, log_likelihood)
    plain = log_likelihood is None and likelihood.reading is None and isinstance(logits, Tensor) and logits.dim() == 2
    # Logits [samples, classes] of a model that says nothing else are of classes: their labels may
    # be left out.
    name = "classes" if plain else _choose_name(likelihood, logits, targets, fisher)
    several = not (name == "classes" and logits.dim() == 2)
    if several and fisher == "empirical" and (targets is None or len(targets) != len(logits)):
        got = "none" if targets is None else f"shape {tuple(targets.shape)}"
        raise ValueError(f"fisher='empirical' needs targets of shape ({len(logits)}, ...), got {got}")
    _check_weights(logits, weights)
    scale = torch.ones(len(logits), dtype=at_least_single(logits).dtype, device=logits.device)
    if weights is not None:
        scale = weights.detach().to(scale).sqrt()
    if not several:
        return list(_class_objectives(logits, targets, scale, fisher, generator, among))
    if fisher == "exact":
        return list(_output_objectives(at_least_single(logits), scale, name))
    if fisher == "mc":
        if among is not None and among.total != len(logits):
            raise ValueError(
                f"fisher='mc' draws the same labels on all ranks for classes only, and these are {name!r}: "
                "choose 'empirical'"
            )
        given, seen = (None if value is None else value.cpu() for value in (targets, attended))
        targets = likelihood.draw(logits.detach().cpu(), given, seen, generator or torch.default_generator)
    else:
        likelihood.check_labels([], targets)
        likelihood.explain_error(targets)
    return [(scale * likelihood(logits, targets.to(logits.device))).sum()]


def _choose_name(likelihood: Likelihood, logits: Any, targets: Any, fisher: str) -> str:
    """Return the likelihood's name ('' for a function); refuse what has no factors of this kind."""
    if callable(likelihood.choice):
        if fisher != "empirical":
            raise ValueError(
                f"fisher={fisher!r} needs a distribution to take labels from, and log_likelihood is a function; "
                "choose fisher='empirical', or a likelihood by name"
            )
        return ""
    name = likelihood.resolve_name(logits, targets)
    if fisher == "exact" and name not in ("gaussian", "bernoulli") and logits.dim() > 2:
        raise ValueError(
            f"fisher='exact' takes every label of every position, a backward pass each, and an output "
            f"{tuple(logits.shape)} of {name!r} has {logits[0].numel()} of them; choose 'mc' or 'empirical'"
        )
    return name


def _class_objectives(
    logits: Tensor,
    targets: Tensor | None,
    scale: Tensor,
    fisher: str,
    generator: torch.Generator | None,
    among: BatchPlace | None,
) -> Iterator[Tensor]:
    """Yield sum_n sqrt(w_n pi_nc) log p_nc for each label c."""
    if fisher == "empirical" and (targets is None or targets.shape != logits.shape[:1]):
        got = "none" if targets is None else f"shape {tuple(targets.shape)}"
        raise ValueError(f"fisher='empirical' needs targets of shape ({len(logits)},), got {got}")
    log_probabilities = torch.log_softmax(at_least_single(logits), 1)
    if fisher == "exact":
        half = log_probabilities.detach().div(2).exp()
        log_probabilities = log_probabilities.masked_fill(half == 0.0, 0.0)  # a closed class: 0 log 0 = 0
        for c in half.any(0).nonzero().flatten().tolist():
            yield (scale * half[:, c] * log_probabilities[:, c]).sum()
        return
    if fisher == "mc":
        targets = sample_labels(logits.detach(), generator, among)
    assert targets is not None
    yield (scale * log_probabilities.gather(1, targets.to(logits.device).unsqueeze(1)).squeeze(1)).sum()


def _output_objectives(outputs: Tensor, scale: Tensor, name: str) -> Iterator[Tensor]:
    """Yield sum_n sqrt(w_n v_nj) s_nj for each output j; its variance v is 1 or p(1-p)."""
    outputs = outputs.reshape(len(outputs), -1)
    chances = outputs.detach().sigmoid()
    roots = (chances * (1.0 - chances)).sqrt() if name == "bernoulli" else torch.ones_like(chances)
    for j in range(outputs.shape[1]):
        yield (scale * roots[:, j] * outputs[:, j]).sum()


def _check_weights(logits: Tensor, weights: Tensor | None) -> None:
    if weights is not None:
        if weights.shape != logits.shape[:1]:
            raise ValueError(f"weights has shape {tuple(weights.shape)}; one per sample is ({len(logits)},)")
        if not bool(((weights >= 0) & weights.isfinite()).all()):
            raise ValueError("weights contains a negative or non-finite value; sample weights must be at least 0")


# -- factors -------------------------------------------------------------------------------------


Inputs = Tensor | Mapping[str, Any]  # of one argument, or by name, the targets perhaps among them


class Factors(NamedTuple):
    """The factors A (``input``) and G (``output``); F of [W|b] is about their Kronecker product."""

    input: Tensor
    output: Tensor


@dataclass
class _Sums:
    """Sums of one layer over samples, positions and calls."""

    input: Tensor | None = None
    output: Tensor | None = None
    rows: int = 0


def to_batch(inputs: Inputs, targets: Any = None) -> SampleBatch:
    """Return the batch ``model(inputs)``, or ``model(**inputs)`` of a mapping, with its targets."""
    if isinstance(inputs, Tensor):
        return SampleBatch((inputs,), {}, targets, len(inputs))
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
    among: BatchPlace | None = None,
    log_likelihood: str | LogLikelihood | None = None,
) -> dict[str, Factors]:
    r"""Compute factors by layer name for every layer that took part in ``model(inputs)``.

    With N samples, P positions per sample (of a convolution's output, of a sequence, or calls):

    .. math::
        A = \frac1N \sum_n \sum_p a_{np} a_{np}^\top, \qquad
        G = \frac1{NP} \sum_n w_n \sum_p \sum_c \pi_{nc}\, g_{ncp} g_{ncp}^\top, \quad
        g_{ncp} = \frac{\partial \log p_{nc}}{\partial s_{np}}

    The model runs in the mode it is in and is restored; under batch norm in training mode g
    contains, as in the reference, the other samples' share.

    Args:
        model: the model.
        inputs: a tensor, or a mapping of the model's arguments, perhaps with targets.
        targets: labels, for "empirical" factors.
        weights: w_n, [N].
        fisher: "exact" takes every class with the model's own probability (a backward pass per
            class), "mc" one label drawn from it on the CPU, "empirical" the given label.
        generator: draws the labels.
        among: the batch's place among those of other processes: its labels are those that one
            process would have drawn.
        log_likelihood: as in :func:`~tmln.curvature.diagonal_fisher`, p being that of all of a
            sample's outputs. "exact" takes an output at a time of "gaussian" and "bernoulli" ones,
            and does not exist for "tokens"; a function has "empirical" factors alone.
    """
    if fisher not in FISHERS:
        raise ValueError(f"fisher={fisher!r} is unknown; choose one of {', '.join(FISHERS)}")
    batch = to_batch(inputs, targets)
    layers = kfac_layers(model)
    sums = {name: _Sums() for name in layers}
    roots: list[Tensor] = []
    with preserve_model(model), torch.enable_grad():
        # g needs activations only: without weight gradients the pass skips a third of the work.
        for p in model.parameters():
            p.requires_grad_(False)
        logits = _record_forward(model, batch, layers, sums, roots)
        attended = batch.kwargs.get("attention_mask")
        found = label_objectives(
            model, logits, batch.target, weights, fisher, generator, among, log_likelihood, attended
        )
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
    """Compute factors of all ``batches``, (inputs, targets) or mappings, as of one, in eval mode.

    >>> x, y = torch.randn(6, 3), torch.zeros(6, dtype=torch.long)
    >>> model = nn.Linear(3, 2)
    >>> whole = mean_factors(model, [(x, y)])
    >>> pieces = mean_factors(model, [(x[:2], y[:2]), (x[2:], y[2:])])
    >>> torch.allclose(whole[""].input, pieces[""].input)
    True
    """
    return count_factors(model, batches, fisher, generator, log_likelihood)[0]


def count_factors(
    model: nn.Module,
    batches: Iterable[Any],
    fisher: str,
    generator: torch.Generator | None,
    log_likelihood: str | LogLikelihood | None = None,
) -> tuple[dict[str, Factors], dict[str, int]]:
    """Return :func:`mean_factors`, and the number of samples behind each layer's."""
    means: dict[str, Factors] = {}
    counts: dict[str, int] = {}
    with preserve_model(model, training=False):
        for raw in batches:
            inputs, targets = (raw, None) if isinstance(raw, Mapping) else raw
            size = to_batch(inputs, targets).size
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


def reduce_factors(
    factors: dict[str, Factors], counts: dict[str, int], layers: dict[str, Layer], ranks: Ranks
) -> dict[str, Factors]:
    """Return factors over the samples of all ranks; each has means over ``counts`` samples."""
    if ranks.size == 1:
        return factors
    gathered = ranks.gather_objects(lambda: counts)
    totals = {name: sum(rank.get(name, 0) for rank in gathered) for name in layers}
    found: dict[str, Factors] = {}
    for name in (name for name, total in totals.items() if total):
        weight = layers[name].weight
        dtype = at_least_single(weight.detach()).dtype
        own = factors.get(name) or Factors(*(weight.new_zeros(n, n, dtype=dtype) for n in factor_sizes(layers[name])))
        share = counts.get(name, 0) / totals[name]
        found[name] = Factors(*(ranks.sum_(factor.detach().mul(share)) for factor in own))
    return found


def _record_forward(
    model: nn.Module, batch: SampleBatch, layers: dict[str, Layer], sums: dict[str, _Sums], roots: list[Tensor]
) -> Any:
    """Return the logits; record each layer's input in ``sums``, and its output gradient later."""
    handles = [
        layer.register_forward_hook(_make_recorder(layer, sums[name], roots), with_kwargs=True)
        for name, layer in layers.items()
    ]
    try:
        return call_model(model, batch.detach())
    finally:
        for handle in handles:
            handle.remove()


def _make_recorder(
    layer: Layer, sums: _Sums, roots: list[Tensor]
) -> Callable[[nn.Module, tuple[Tensor, ...], dict[str, Tensor], Tensor], Tensor]:
    """Return a forward hook that adds the input's part at once, and the gradient's part on arrival.

    At once, because what follows may overwrite the input in place, and because nothing is kept
    then.
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
