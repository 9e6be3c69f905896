"""Batches as data loaders give them: reading, cutting, and arguments that all samples share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tmln.curvature.likelihoods import LogLikelihood

TARGET_KEYS = ("labels", "label", "target", "targets", "y")


@dataclass(frozen=True)
class SampleBatch:
    """A call ``model(*args, **kwargs)`` whose output is scored against ``target``.

    ``by_sample`` says for each leaf of ``(args, kwargs)`` whether dim 0 are the samples, or whether
    all samples share it. Unless given, tensors as long as the batch have samples. Parts of a batch
    keep it, since a shared tensor may be as long as a part.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    target: Any
    size: int
    by_sample: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if not self.by_sample:
            leaves = pytree.tree_leaves((self.args, self.kwargs))
            object.__setattr__(self, "by_sample", tuple(_has_rows(leaf, self.size) for leaf in leaves))

    def __getitem__(self, rows: slice) -> SampleBatch:
        return self.map_samples(lambda leaf: leaf[rows], len(range(*rows.indices(self.size))))

    def flatten(self) -> tuple[list[Any], list[bool], Any]:
        """Return the leaves of ``(args, kwargs, target)``, which have samples, and the tree."""
        leaves, form = pytree.tree_flatten((self.args, self.kwargs, self.target))
        targets = leaves[len(self.by_sample) :]
        return leaves, [*self.by_sample, *(_has_rows(leaf, self.size) for leaf in targets)], form

    def map_samples(self, change: Callable[[Tensor], Tensor], size: int) -> SampleBatch:
        """Return a batch of ``size`` samples: ``change`` applied to tensors that have samples."""
        leaves, rows, form = self.flatten()
        changed = [change(leaf) if has else leaf for leaf, has in zip(leaves, rows, strict=True)]
        args, kwargs, target = pytree.tree_unflatten(changed, form)
        return SampleBatch(args, kwargs, target, size, self.by_sample)

    def with_target(self, target: Any) -> SampleBatch:
        """Return the same inputs with another target."""
        return SampleBatch(self.args, self.kwargs, target, self.size, self.by_sample)

    def chunks(self, size: int) -> Iterator[SampleBatch]:
        """Cut the batch into parts of at most ``size`` samples."""
        return (self[start : start + size] for start in range(0, self.size, size))

    def to(self, device: torch.device) -> SampleBatch:
        """Return the batch on a device, detached."""
        return self._each(lambda leaf: leaf.detach().to(device))

    def detach(self) -> SampleBatch:
        """Return the same values without their graph."""
        return self._each(Tensor.detach)

    def _each(self, change: Callable[[Tensor], Tensor]) -> SampleBatch:
        def changed(leaf: Any) -> Any:
            return change(leaf) if isinstance(leaf, Tensor) else leaf

        args, kwargs, target = pytree.tree_map(changed, (self.args, self.kwargs, self.target))
        return SampleBatch(args, kwargs, target, self.size, self.by_sample)


def _has_rows(leaf: Any, size: int) -> bool:
    return isinstance(leaf, Tensor) and leaf.dim() > 0 and len(leaf) == size


def read_batch(raw: Any, *, labelled: bool = True) -> SampleBatch:
    """Read ``(x, ..., y)``, or a mapping with the target under one of ``TARGET_KEYS``.

    The other entries of a mapping are keyword arguments of the model. Without ``labelled``, when
    labels will be drawn, it needs no target.
    """
    if isinstance(raw, Mapping):
        key = next((k for k in TARGET_KEYS if k in raw), None)
        if key is None and labelled:
            raise ValueError(f"a dict batch needs one of {', '.join(TARGET_KEYS)}; it has {', '.join(map(str, raw))}")
        args: tuple[Any, ...] = ()
        kwargs = {k: v for k, v in raw.items() if k != key}
        target = None if key is None else raw[key]
    elif isinstance(raw, (tuple, list)) and len(raw) >= 2:
        args, kwargs, target = tuple(raw[:-1]), {}, raw[-1]
    else:
        raise TypeError(
            f"batches must yield (x, y) tuples or dicts, got {type(raw).__name__}; "
            "for one batch pass [(x, y)] rather than (x, y)"
        )
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.dim()]
    if not tensors:
        raise TypeError("a batch has no input tensor")
    targets = [leaf for leaf in pytree.tree_leaves(target) if isinstance(leaf, Tensor) and leaf.dim()]
    if any(len(leaf) != len(tensors[0]) for leaf in targets):
        raise ValueError(f"a batch has {len(tensors[0])} inputs but {len(targets[0])} targets")
    return SampleBatch(args, kwargs, target, len(tensors[0]))


def batch_signature(batch: SampleBatch) -> Any:
    """Return what batches must have in common to be concatenated: all but their samples."""
    leaves, rows, form = batch.flatten()

    def kind(leaf: Any, has_rows: bool) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf if leaf is None or isinstance(leaf, (bool, int, float, str)) else type(leaf)
        return has_rows, leaf.shape[1:] if has_rows else leaf.shape, leaf.dtype

    return str(form), tuple(map(kind, leaves, rows))


def concatenate_batches(first: SampleBatch, second: SampleBatch) -> SampleBatch:
    """Return the samples of two batches of one signature; shared arguments are the first's."""
    others = (leaf for leaf, has in zip(*second.flatten()[:2], strict=True) if has)
    return first.map_samples(lambda leaf: torch.cat([leaf, next(others)]), first.size + second.size)


def call_model(model: nn.Module, batch: SampleBatch) -> Any:
    """Return the model's output, or its ``logits`` if it is a mapping or object that has them."""
    return logits_of(model(*batch.args, **batch.kwargs))


def logits_of(output: Any) -> Any:
    """Return the ``logits`` of a mapping or object, or the output itself."""
    if isinstance(output, Mapping):
        return output.get("logits", output)
    return getattr(output, "logits", output)


def total_log_likelihood(score: LogLikelihood, output: Any, target: Any) -> Tensor:
    """Return the sum over samples; its gradient is the sum of per-sample gradients."""
    value = score(output, target)
    if not isinstance(value, Tensor) or value.dim() != 1:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"log_likelihood must return one value a sample, [B]; got {shape}")
    return value.sum()


# -- arguments that all samples share ------------------------------------------------------------


SEVERAL = 5  # arguments of a batch up to which all combinations are tried; of more, one shared argument at a time


def find_sample_arguments(
    model: nn.Module, score: LogLikelihood, batch: SampleBatch, label: Callable[[SampleBatch], SampleBatch]
) -> tuple[bool, ...]:
    """Return ``by_sample`` of a batch of which several arguments are as long as it has samples.

    Under the right one, single samples have the output that they have in the whole batch. All
    arguments are taken to have samples first, then as few as possible to be shared. If none fits,
    since the model looks at all samples at once, it is the only one under which outputs follow
    samples that change places; if none or several do, this raises. ``label`` adds a target where
    there is none.
    """
    with torch.no_grad():
        try:
            labelled = label(batch)
            whole = call_model(model, labelled)
        except Exception:  # a model that takes single samples only: all is as long as it looks
            return batch.by_sample
        candidates = list(_candidates(batch.by_sample))
        for fits in (_matches_alone, _matches_moved):
            found, ran = [], False
            for by_sample in candidates:
                try:
                    agrees = fits(model, score, replace(labelled, by_sample=by_sample), whole)
                except Exception:  # what was cut wrongly seldom goes through
                    continue
                ran = True
                found += [by_sample] if agrees else []
                if found and fits is _matches_alone:
                    return by_sample
            if not ran:  # the same error is raised later with an explanation
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
    """Yield ``by_sample``, then with one argument shared, with two and so on; one keeps samples."""
    places = [place for place, has in enumerate(by_sample) if has]
    for count in range(len(places) if len(places) <= SEVERAL else 2):
        for shared in combinations(places, count):
            yield tuple(has and place not in shared for place, has in enumerate(by_sample))


def _matches_alone(model: nn.Module, score: LogLikelihood, batch: SampleBatch, whole: Any) -> bool:
    """Return whether samples passed alone have the output that they have in the batch."""
    for n in sorted({0, batch.size // 2, batch.size - 1}):
        row = slice(n, n + 1)
        if not _outputs_match(score, call_model(model, batch[row]), batch[row], whole, batch, row):
            return False
    return True


def _matches_moved(model: nn.Module, score: LogLikelihood, batch: SampleBatch, whole: Any) -> bool:
    """Return whether outputs move with their samples when each takes the place of the next."""
    order = torch.arange(batch.size).roll(1)
    moved = batch.map_samples(lambda leaf: leaf[order.to(leaf.device)], batch.size)
    return _outputs_match(score, call_model(model, moved), moved, whole, batch, order)


def _outputs_match(
    score: LogLikelihood, output: Any, batch: SampleBatch, whole: Any, all_of_it: SampleBatch, rows: slice | Tensor
) -> bool:
    """Return whether the output of ``batch`` equals these ``rows`` of ``whole``."""
    pairs = [
        (a, b)
        for a, b in zip(pytree.tree_leaves(output), pytree.tree_leaves(whole), strict=True)
        if isinstance(a, Tensor) and a.is_floating_point() and a.dim()
        if (len(a), len(b)) == (batch.size, all_of_it.size)
    ]
    if not pairs:  # samples are not along dim 0 of the output: the score has them
        pairs = [(score(output, batch.target), score(whole, all_of_it.target))]
    return all(_is_close(a, b[rows]) for a, b in pairs)


def _is_close(a: Tensor, b: Tensor) -> bool:
    """Return whether two outputs differ by rounding only."""
    if a.shape != b.shape:
        return False
    finite = b[b.isfinite()].abs()
    single = a.dtype in (torch.float32, torch.float64)
    share = 0.05 if not single else 1e-4 if a.device.type == "cpu" else 1e-2
    return torch.allclose(a, b, rtol=0.0, atol=share * float(finite.max()) if finite.numel() else 0.0, equal_nan=True)
