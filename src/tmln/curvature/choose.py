"""Which way to per-sample gradients fits a model: hooks where they are exact, else vmap, else one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tmln.curvature.batches import Batch, LogLikelihood, joined, kind_of
from tmln.curvature.functional import LoopPass, VmapPass
from tmln.curvature.hooks import HookPass, Unsupported
from tmln.curvature.sizes import SQUARED, Size

Sums = Callable[[Batch], dict[Tensor, Tensor]]
logger = logging.getLogger("tmln.curvature")

WAYS: dict[str, Callable[..., Sums]] = {
    "hooks": HookPass,
    "vmap": VmapPass,
    "loop": LoopPass,
}


@dataclass
class Verdict:
    """A way that agreed with plain autograd, its floats a sample, and what the probe's gradients left unproven."""

    way: str
    floats: int = 0
    silent: set[Tensor] = field(default_factory=set)


class Ways:
    """Sums of the sizes of per-sample gradients, each kind of batch by the fastest way that agrees with plain autograd.

    A way is found anew by every instance, on two samples of each kind: what a forward pass does may hang on anything,
    an attribute, a closure, the shapes. A batch of one sample proves nothing, since no way can mix its samples: it
    goes by the loop until a second one of its kind has come.
    """

    def __init__(
        self,
        model: nn.Module,
        trainable: set[Tensor],
        score: LogLikelihood,
        labelled: Callable[[Batch], Batch],
        size: Size = SQUARED,
    ) -> None:
        self.passes = {way: make(model, trainable, score, size=size) for way, make in WAYS.items()}
        self.model, self.trainable, self.score, self.labelled, self.size = model, trainable, score, labelled, size
        self.verdicts: dict[Any, Verdict] = {}
        self._alone: tuple[Any, Batch] | None = None  # the last sample that came alone, only one: they may be large

    @property
    def slowest(self) -> str:
        """The way of all, or the slowest of several."""
        found = {verdict.way for verdict in self.verdicts.values()}
        return next((way for way in reversed(WAYS) if way in found), "loop")

    def verdict(self, batch: Batch) -> Verdict:
        kind = kind_of(batch)
        if kind not in self.verdicts:
            probe = batch[:2]
            if batch.size == 1:
                known, other = self._alone or (None, batch)
                self._alone = (kind, batch)
                if known != kind:
                    return Verdict("loop")
                probe = joined(other, batch)
            self.verdicts[kind] = find_way(self.model, self.trainable, self.score, self.labelled(probe), self.size)
        return self.verdicts[kind]

    def sums(self, verdict: Verdict, chunk: Batch) -> dict[Tensor, Tensor]:
        """Of the samples of ``chunk``; where a parameter moves that stood still in the probe, checked once more."""
        found = self.passes[verdict.way](chunk)
        moving = {p for p in verdict.silent if p in found and bool(found[p].any())}
        if not moving:
            return found
        expected = self.passes["loop"](chunk)
        try:
            _compare(found, expected, self.size)
            verdict.silent -= moving
        except Unsupported as reason:
            probe = chunk[:2]
            alone = self.passes["loop"](probe)
            slower = _without_hooks(self.model, self.trainable, self.score, self.size, probe, alone, str(reason))
            verdict.way, verdict.floats, verdict.silent = slower.way, slower.floats, slower.silent
        return expected


def find_way(
    model: nn.Module, trainable: set[Tensor], score: LogLikelihood, probe: Batch, size: Size = SQUARED
) -> Verdict:
    """The fastest way that agrees with plain autograd on the samples of ``probe``."""
    loop = LoopPass(model, trainable, score, size)  # a wrong model, target or loss raises here, in plain words
    alone = [loop(sample) for sample in probe.chunks(1)]
    weights = range(1, probe.size + 1)  # without them, alike samples could be mixed unseen

    def weighted(output: Any, target: Any) -> Tensor:
        values = score(output, target)
        return values * torch.tensor(weights, dtype=values.dtype, device=values.device)

    expected = _summed(alone, [weight**size.power for weight in weights])
    try:
        hooks = HookPass(model, trainable, weighted, _NoDataDependence, size)
        _compare(hooks(probe), expected, size)
    except Exception as reason:
        return _without_hooks(model, trainable, score, size, probe, _summed(alone, [1] * probe.size), str(reason))
    return Verdict("hooks", hooks.floats_per_sample, {p for p, value in expected.items() if not value.any()})


def _summed(found: list[dict[Tensor, Tensor]], weights: list[int]) -> dict[Tensor, Tensor]:
    total: dict[Tensor, Tensor] = {}
    for weight, sums in zip(weights, found, strict=True):
        for p, value in sums.items():
            total[p] = total[p] + weight * value if p in total else weight * value
    return total


def _without_hooks(
    model: nn.Module,
    trainable: set[Tensor],
    score: LogLikelihood,
    size: Size,
    probe: Batch,
    expected: dict[Tensor, Tensor],
    words: str,
) -> Verdict:
    verdict = Verdict("vmap", 3 * sum(p.numel() for p in trainable))
    try:
        _compare(VmapPass(model, trainable, score, size)(probe), expected, size)
    except Exception as reason:
        verdict, words = Verdict("loop"), str(reason)
    _log_once(type(model).__name__, verdict.way, words.split("\n")[0])
    return verdict


def _compare(found: dict[Tensor, Tensor], expected: dict[Tensor, Tensor], size: Size = SQUARED) -> None:
    """Gross errors only (a layer used past its rule, samples mixed): rounding is not judged here."""
    scale = max((float(value.max()) for value in expected.values() if value.numel()), default=0.0)
    for p in found.keys() | expected.keys():
        a = found.get(p, torch.zeros_like(p))
        b = expected.get(p, torch.zeros_like(p))
        single = p.dtype in (torch.float32, torch.float64)
        # What should cancel, as the gradient of a bias before a norm, is noise: about 1e-6 of the largest gradient on
        # a CPU, squared here; on a GPU, where single precision may be cut to ten bits, 1e-3.
        noise = (1e-8 if single and p.device.type == "cpu" else 1e-3) ** (size.power / 2)
        allowed = (0.01 if single else 0.2) * (float(b.max()) + noise * scale) if b.numel() else 0.0
        missed = p in expected and p not in found  # also where its gradient is 0 here: it need not be elsewhere
        if b.numel() and (missed or not float((a - b).abs().max()) <= allowed):
            raise Unsupported(f"a parameter of shape {tuple(p.shape)} is used in a way that hooks do not see")


class _NoDataDependence(TorchDispatchMode):
    """A forward that branches on values treats a chunk as one: then samples must go alone.

    So does one that picks rows by a mask: how many each sample has, nobody knows afterwards.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        branches = func in (aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default)
        rows = args[1][0] if func is aten.index.Tensor else None
        if branches or (rows is not None and rows.dtype is torch.bool):
            raise Unsupported("its forward depends on the values in a batch")
        return func(*args, **(kwargs or {}))


@cache
def _log_once(model: str, way: str, reason: str) -> None:
    logger.warning("per-sample gradients: %s goes by %s, which is slower (%s)", model, way, reason)
