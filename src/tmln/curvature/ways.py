"""Which way to per-sample gradients fits a model: hooks where they are exact, else vmap, else one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tmln.curvature.batches import Batch, LogLikelihood
from tmln.curvature.functional import LoopPass, VmapPass
from tmln.curvature.hooks import HookPass, Unsupported

Squares = Callable[[Batch], dict[Tensor, Tensor]]
logger = logging.getLogger("tmln.curvature")

WAYS: dict[str, Callable[[nn.Module, set[Tensor], LogLikelihood], Squares]] = {
    "hooks": HookPass,
    "vmap": VmapPass,
    "loop": LoopPass,
}
# What was found for a model and how many floats a sample takes; found again when the model's structure changes.
_VERDICTS: WeakKeyDictionary[nn.Module, tuple[Any, str, int]] = WeakKeyDictionary()


def _structure(model: nn.Module, trainable: set[Tensor], probe: Batch, score: LogLikelihood) -> Any:
    modules = [(id(m), type(m), len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    leaves = pytree.tree_leaves((probe.args, probe.kwargs, probe.target))
    shapes = [(leaf.shape, leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else type(leaf) for leaf in leaves]
    return modules, {id(p) for p in trainable}, shapes, score


def find_way(model: nn.Module, trainable: set[Tensor], score: LogLikelihood, probe: Batch) -> tuple[str, int]:
    """The fastest way that agrees with plain autograd on the samples of ``probe``, and its floats a sample."""
    structure = _structure(model, trainable, probe, score)
    known = _VERDICTS.get(model)
    if known is None or known[0] != structure:
        known = _VERDICTS[model] = (structure, *_try_ways(model, trainable, score, probe))
    return known[1:]


def _try_ways(model: nn.Module, trainable: set[Tensor], score: LogLikelihood, probe: Batch) -> tuple[str, int]:
    expected = LoopPass(model, trainable, score)(probe)  # a wrong model, target or loss raises here, in plain words
    try:
        hooks = HookPass(model, trainable, score)
        with _NoDataDependence():  # type: ignore[no-untyped-call]
            found = hooks(probe)
        _compare(found, expected)
        return "hooks", hooks.floats_per_sample
    except Exception as reason:
        way, words = "vmap", str(reason)
    try:
        _compare(VmapPass(model, trainable, score)(probe), expected)
    except Exception as reason:
        way, words = "loop", str(reason)
    _log_once(type(model).__name__, way, words.split("\n")[0])
    return way, 3 * sum(p.numel() for p in trainable) if way == "vmap" else 0


def _compare(found: dict[Tensor, Tensor], expected: dict[Tensor, Tensor]) -> None:
    """Gross errors only (a layer used past its rule, samples mixed): rounding is not judged here."""
    scale = max((float(value.max()) for value in expected.values() if value.numel()), default=0.0)
    for p in found.keys() | expected.keys():
        a = found.get(p, torch.zeros_like(p))
        b = expected.get(p, torch.zeros_like(p))
        rounding = 0.01 if p.dtype in (torch.float32, torch.float64) else 0.2
        allowed = rounding * (float(b.max()) + 1e-3 * scale) if b.numel() else 0.0
        if b.numel() and not float((a - b).abs().max()) <= allowed:
            raise Unsupported(f"a parameter of shape {tuple(p.shape)} is used in a way that hooks do not see")


class _NoDataDependence(TorchDispatchMode):
    """A forward that branches on values treats a chunk as one: then samples must go alone."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            raise Unsupported("its forward depends on the values in a batch")
        return func(*args, **(kwargs or {}))


@cache
def _log_once(model: str, way: str, reason: str) -> None:
    logger.warning("diagonal_fisher: %s goes by %s, which is slower (%s)", model, way, reason)
