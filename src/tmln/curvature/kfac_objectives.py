"""What is differentiated for G: log p of a model's outputs, by the likelihood's name and by whose labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tmln.curvature.kfac_layers import at_least_single
from tmln.curvature.likelihoods import Likelihood, LogLikelihood

FISHERS = ("mc", "exact", "empirical")


class Among(NamedTuple):
    """A batch's place in a larger one: samples before it, and samples in all."""

    before: int
    total: int


def sampled_labels(logits: Tensor, generator: torch.Generator | None, among: Among | None = None) -> Tensor:
    """One label per row from softmax(logits), by inverting a uniform number; on the CPU for any device."""
    before, total = among or Among(0, len(logits))
    cumulative = torch.softmax(logits.cpu(), 1, dtype=torch.float64).cumsum(1)
    uniform = torch.rand(total, 1, dtype=torch.float64, generator=generator)[before : before + len(logits)]
    # Rounding may leave the sum below 1: the rest is the last class's that adds to it, for those behind are closed.
    last = (cumulative < cumulative[:, -1:]).sum(1)
    return torch.minimum((uniform >= cumulative).sum(1), last)


def objectives(
    model: nn.Module,
    logits: Any,
    targets: Any,
    weights: Tensor | None,
    fisher: str,
    generator: torch.Generator | None,
    among: Among | None = None,
    log_likelihood: str | LogLikelihood | None = None,
    attended: Tensor | None = None,
) -> list[Tensor]:
    """Scalars whose gradients, squared and summed, give G: one for "mc" and "empirical", one a label for "exact"."""
    likelihood = Likelihood(model, log_likelihood)
    plain = log_likelihood is None and likelihood.reading is None and isinstance(logits, Tensor) and logits.dim() == 2
    # Logits [samples, classes] of a model that says nothing else are of classes: their labels may be left out.
    name = "classes" if plain else _named(likelihood, logits, targets, fisher)
    several = not (name == "classes" and logits.dim() == 2)
    if several and fisher == "empirical" and (targets is None or len(targets) != len(logits)):
        got = "none" if targets is None else f"shape {tuple(targets.shape)}"
        raise ValueError(f"fisher='empirical' needs targets of shape ({len(logits)}, ...), got {got}")
    _check_weights(logits, weights)
    scale = torch.ones(len(logits), dtype=at_least_single(logits).dtype, device=logits.device)
    if weights is not None:
        scale = weights.detach().to(scale).sqrt()
    if not several:
        return list(_of_classes(logits, targets, scale, fisher, generator, among))
    if fisher == "exact":
        return list(_of_outputs(at_least_single(logits), scale, name))
    if fisher == "mc":
        if among is not None and among.total != len(logits):
            raise ValueError(
                f"fisher='mc' draws the same labels on all ranks for classes only, and these are {name!r}: "
                "choose 'empirical'"
            )
        given, seen = (None if value is None else value.cpu() for value in (targets, attended))
        targets = likelihood.draw(logits.detach().cpu(), given, seen, generator or torch.default_generator)
    else:
        likelihood.inspect([], targets)
        likelihood.explain(targets)
    return [(scale * likelihood(logits, targets.to(logits.device))).sum()]


def _named(likelihood: Likelihood, logits: Any, targets: Any, fisher: str) -> str:
    """The likelihood's name; a function's is ''. What has no factors of this kind is refused."""
    if callable(likelihood.choice):
        if fisher != "empirical":
            raise ValueError(
                f"fisher={fisher!r} needs a distribution to take labels from, and log_likelihood is a function; "
                "choose fisher='empirical', or a likelihood by name"
            )
        return ""
    name = likelihood.settled(logits, targets)
    if fisher == "exact" and name not in ("gaussian", "bernoulli") and logits.dim() > 2:
        raise ValueError(
            f"fisher='exact' takes every label of every position, a backward pass each, and an output "
            f"{tuple(logits.shape)} of {name!r} has {logits[0].numel()} of them; choose 'mc' or 'empirical'"
        )
    return name


def _of_classes(
    logits: Tensor,
    targets: Tensor | None,
    scale: Tensor,
    fisher: str,
    generator: torch.Generator | None,
    among: Among | None,
) -> Iterator[Tensor]:
    """sum_n sqrt(w_n pi_nc) log p_nc for each label c."""
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
        targets = sampled_labels(logits.detach(), generator, among)
    assert targets is not None
    yield (scale * log_probabilities.gather(1, targets.to(logits.device).unsqueeze(1)).squeeze(1)).sum()


def _of_outputs(outputs: Tensor, scale: Tensor, name: str) -> Iterator[Tensor]:
    """sum_n sqrt(w_n v_nj) s_nj for each output j, with v its variance: 1, or p(1-p) where p = sigmoid(s)."""
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
