"""What a batch is: the model's inputs and the target, in the shapes that data loaders give them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tmln.curvature.likelihoods import LogLikelihood

TARGET_KEYS = ("labels", "label", "target", "targets", "y")


@dataclass(frozen=True)
class Batch:
    """``model(*args, **kwargs)`` is to be scored against ``target``.

    ``by_sample`` says of each leaf of ``(args, kwargs)`` whether it has the samples along dim 0, or is shared by all of
    them. Unless given, those of the right length have, as all tensors of the target do; what is cut from a batch keeps
    its answer, since a shared tensor may be as long as a part of the batch.
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

    def __getitem__(self, rows: slice) -> Batch:
        return self.map_samples(lambda leaf: leaf[rows], len(range(*rows.indices(self.size))))

    def flatten(self) -> tuple[list[Any], list[bool], Any]:
        """Return the leaves of ``(args, kwargs, target)``, whether each has samples, and their structure."""
        leaves, form = pytree.tree_flatten((self.args, self.kwargs, self.target))
        targets = leaves[len(self.by_sample) :]
        return leaves, [*self.by_sample, *(_has_rows(leaf, self.size) for leaf in targets)], form

    def map_samples(self, change: Callable[[Tensor], Tensor], size: int) -> Batch:
        """Return the batch of ``size`` samples with ``change`` applied to every tensor that has samples."""
        leaves, rows, form = self.flatten()
        changed = [change(leaf) if has else leaf for leaf, has in zip(leaves, rows, strict=True)]
        args, kwargs, target = pytree.tree_unflatten(changed, form)
        return Batch(args, kwargs, target, size, self.by_sample)

    def with_target(self, target: Any) -> Batch:
        """Return the same inputs with another target."""
        return Batch(self.args, self.kwargs, target, self.size, self.by_sample)

    def chunks(self, size: int) -> Iterator[Batch]:
        return (self[start : start + size] for start in range(0, self.size, size))

    def to(self, device: torch.device) -> Batch:
        return self._each(lambda leaf: leaf.detach().to(device))

    def detached(self) -> Batch:
        """The same values, of which no graph knows."""
        return self._each(Tensor.detach)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        def changed(leaf: Any) -> Any:
            return change(leaf) if isinstance(leaf, Tensor) else leaf

        args, kwargs, target = pytree.tree_map(changed, (self.args, self.kwargs, self.target))
        return Batch(args, kwargs, target, self.size, self.by_sample)


def _has_rows(leaf: Any, size: int) -> bool:
    return isinstance(leaf, Tensor) and leaf.dim() > 0 and len(leaf) == size


def read_batch(raw: Any, *, labelled: bool = True) -> Batch:
    """``(x, ..., y)``, or a mapping with the target under one of ``labels``, ``label``, ``target``, ``y``.

    The rest of a mapping are the model's keyword arguments. Where labels are drawn (not ``labelled``) it needs none.
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
    return Batch(args, kwargs, target, len(tensors[0]))


def batch_signature(batch: Batch) -> Any:
    """What two batches have in common whose samples could stand in one: all but the number and values of samples."""
    leaves, rows, form = batch.flatten()

    def kind(leaf: Any, has_rows: bool) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf if leaf is None or isinstance(leaf, (bool, int, float, str)) else type(leaf)
        return has_rows, leaf.shape[1:] if has_rows else leaf.shape, leaf.dtype

    return str(form), tuple(map(kind, leaves, rows))


def concatenate_batches(first: Batch, second: Batch) -> Batch:
    """The samples of two batches of one kind; what belongs to no sample is the first one's."""
    others = (leaf for leaf, has in zip(*second.flatten()[:2], strict=True) if has)
    return first.map_samples(lambda leaf: torch.cat([leaf, next(others)]), first.size + second.size)


def call_model(model: nn.Module, batch: Batch) -> Any:
    """The model's output; where it is a mapping or an object with ``logits``, these."""
    return logits_of(model(*batch.args, **batch.kwargs))


def logits_of(output: Any) -> Any:
    """Of a mapping or an object with ``logits``, these; else the output itself."""
    if isinstance(output, Mapping):
        return output.get("logits", output)
    return getattr(output, "logits", output)


def total_log_likelihood(score: LogLikelihood, output: Any, target: Any) -> Tensor:
    """The sum over samples, whose gradient holds every sample's own."""
    value = score(output, target)
    if not isinstance(value, Tensor) or value.dim() != 1:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"log_likelihood must return one value a sample, [B]; got {shape}")
    return value.sum()
