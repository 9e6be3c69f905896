"""Arguments that all samples of a batch share, such as positions or a mask, told from those that hold one a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tmln.curvature.batches import Batch, call_model
from tmln.curvature.likelihoods import LogLikelihood

SEVERAL = 5  # arguments of a batch up to which all combinations are tried; of more, one shared argument at a time


def tell_apart(
    model: nn.Module, score: LogLikelihood, batch: Batch, label: Callable[[Batch], Batch]
) -> tuple[bool, ...]:
    """Return ``by_sample`` of a batch of which several arguments are as long as it has samples.

    The right one gives samples alone the output that they have in the whole batch. All arguments are taken for
    per-sample first, then as few as possible for shared. Where none does, since the model looks at all samples at once,
    it is the only one under which outputs follow samples that change places; if none or several are, it raises.
    ``label`` gives a batch without targets some.
    """
    with torch.no_grad():
        try:
            labelled = label(batch)
            whole = call_model(model, labelled)
        except Exception:  # a model that takes single samples only: all is as long as it looks
            return batch.by_sample
        candidates = list(_candidates(batch.by_sample))
        for fits in (_fits_alone, _fits_moved):
            found, ran = [], False
            for by_sample in candidates:
                try:
                    agrees = fits(model, score, replace(labelled, by_sample=by_sample), whole)
                except Exception:  # what was cut wrongly seldom goes through
                    continue
                ran = True
                found += [by_sample] if agrees else []
                if found and fits is _fits_alone:
                    return by_sample
            if not ran:  # the error comes again where it is told in plain words
                return batch.by_sample
    if len(found) == 1:
        return found[0]
    leaves = pytree.tree_leaves((batch.args, batch.kwargs))
    shapes = [str(tuple(leaf.shape)) for leaf, has in zip(leaves, batch.by_sample, strict=True) if has]
    raise ValueError(
        f"arguments of shapes {', '.join(shapes)} are as long as the batch of {batch.size} samples, and a sample alone "
        f"has another output than in the batch, whichever of them are cut: {type(model).__name__} mixes samples. "
        "Give what they share as [samples, ...], or another batch size"
    )


def _candidates(by_sample: tuple[bool, ...]) -> Iterator[tuple[bool, ...]]:
    """Yield ``by_sample`` itself, then with one argument shared, with two and so on; one stays by sample."""
    places = [place for place, has in enumerate(by_sample) if has]
    for count in range(len(places) if len(places) <= SEVERAL else 2):
        for shared in combinations(places, count):
            yield tuple(has and place not in shared for place, has in enumerate(by_sample))


def _fits_alone(model: nn.Module, score: LogLikelihood, batch: Batch, whole: Any) -> bool:
    """Return whether samples that are cut from the batch, each alone, have the output that they have in ``whole``."""
    for n in sorted({0, batch.size // 2, batch.size - 1}):
        row = slice(n, n + 1)
        if not _same(score, call_model(model, batch[row]), batch[row], whole, batch, row):
            return False
    return True


def _fits_moved(model: nn.Module, score: LogLikelihood, batch: Batch, whole: Any) -> bool:
    """Return whether outputs move with their samples, when each takes the place of the next."""
    order = torch.arange(batch.size).roll(1)
    moved = batch.map_samples(lambda leaf: leaf[order.to(leaf.device)], batch.size)
    return _same(score, call_model(model, moved), moved, whole, batch, order)


def _same(score: LogLikelihood, output: Any, batch: Batch, whole: Any, all_of_it: Batch, rows: slice | Tensor) -> bool:
    """Return whether the output of ``batch`` is in these ``rows`` of that of all samples, ``whole``."""
    pairs = [
        (a, b)
        for a, b in zip(pytree.tree_leaves(output), pytree.tree_leaves(whole), strict=True)
        if isinstance(a, Tensor) and a.is_floating_point() and a.dim()
        if (len(a), len(b)) == (batch.size, all_of_it.size)
    ]
    if not pairs:  # samples are not along dim 0 of the output: the score has them
        pairs = [(score(output, batch.target), score(whole, all_of_it.target))]
    return all(_close(a, b[rows]) for a, b in pairs)


def _close(a: Tensor, b: Tensor) -> bool:
    """Return whether two outputs differ by rounding only."""
    if a.shape != b.shape:
        return False
    finite = b[b.isfinite()].abs()
    single = a.dtype in (torch.float32, torch.float64)
    share = 0.05 if not single else 1e-4 if a.device.type == "cpu" else 1e-2
    return torch.allclose(a, b, rtol=0.0, atol=share * float(finite.max()) if finite.numel() else 0.0, equal_nan=True)
