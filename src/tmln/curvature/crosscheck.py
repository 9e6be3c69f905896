"""Checks of a fast pass: against plain autograd, for sample order, and for data dependence."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tmln.curvature.batches import SampleBatch, call_model
from tmln.curvature.functional import LoopPass
from tmln.curvature.lazy_gradients import Piece, at_least_single, merge_products, sum_pieces, to_dense
from tmln.curvature.likelihoods import LogLikelihood
from tmln.curvature.square_sums import for_each_tile

# Code that reads masks only to find out whether one can be left out, or warned about: with and
# without, the numbers are the same. Named by module, or by module and function.
HARMLESS = {
    "torch.nn.modules.transformer",
    "transformers.masking_utils",
    "transformers.modeling_attn_mask_utils",
    "transformers.modeling_utils.warn_if_padding_and_no_attention_mask",
    "transformers.utils.import_utils.torch_compilable_check",
}


class Unsupported(Exception):
    """A fast pass cannot treat the model exactly; ``culprit`` is the module to blame, if known."""

    def __init__(self, words: str, culprit: torch.nn.Module | None = None) -> None:
        super().__init__(words)
        self.culprit = culprit


class NoDataDependence(TorchDispatchMode):
    """A mode that raises where a forward pass depends on the values in a batch.

    A forward pass that branches on values, or picks rows by a mask, treats a batch as one; its
    samples must go alone. One that sorts along dim 0 may reorder samples unnoticed.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        branches = func in (aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default)
        rows = args[1][0] if func is aten.index.Tensor else None
        picks = rows is not None and rows.dtype is torch.bool
        sorts = func in (aten.sort.default, aten.sort.stable, aten.topk.default)
        if (branches or picks or (sorts and _sorts_samples(func, args, kwargs or {}))) and not _is_harmless(
            sys._getframe(1)
        ):
            raise Unsupported("its forward depends on the values in a batch")
        return func(*args, **(kwargs or {}))


def _sorts_samples(func: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a sort is along dim 0; by default it is along the last dimension."""
    place = 2 if func is torch.ops.aten.topk.default else 1
    dim = args[place] if len(args) > place else kwargs.get("dim", -1)
    return bool(args[0].dim() and dim % args[0].dim() == 0)


def _is_harmless(frame: FrameType | None) -> bool:
    """Return whether the innermost code outside torch, or a known place in torch, is harmless."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module in HARMLESS or f"{module}.{frame.f_code.co_name}" in HARMLESS:
            return True
        if module.partition(".")[0] != "torch" and module != __name__:
            return False
        frame = frame.f_back
    return False


# The two samples' gradients are compared as g_0 - WEIGHT * g_1. The sign is in the score of the
# chunk that they are in, so that samples that are alike cannot be mixed unseen; sizes do not see
# it. Any other weight than 1 will do.
WEIGHT = 1.6180339887

# Samples of a chunk that are checked in another order besides: a model that reorders them on the
# way, and uses a layer before and after, may leave the first two in their places.
DRAWN = 8


def alternate_signs(score: LogLikelihood, output: object, target: object) -> Tensor:
    """Return the score with every second sample's sign turned."""
    values = score(output, target)
    return values * (1.0 - 2.0 * (torch.arange(len(values), device=values.device) % 2)).to(values.dtype)


@dataclass
class PairCheck:
    """Gradients of a chunk's first two samples by plain autograd, against those of a pass."""

    expected: dict[Tensor, Tensor]
    saved: int  # floats that one sample's forward pass keeps for its backward pass
    differences: dict[Tensor, list[Tensor]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: nn.Module, trainable: set[Tensor], score: LogLikelihood, pair: SampleBatch) -> PairCheck:
        """Compute the expected gradients; a wrong model, target or loss raises here."""
        loop = LoopPass(model, trainable, score)  # a wrong model, target or loss raises here, in plain words
        first, second = pair.chunks(1)
        with _count_saved(model) as saved:
            found = {p: at_least_single(gradient) for p, gradient in loop.gradients(first)}
        for p, gradient in loop.gradients(second):  # never in place: autograd may give one tensor to two parameters
            gradient = at_least_single(gradient)
            found[p] = found[p].sub(gradient, alpha=WEIGHT) if p in found else gradient * -WEIGHT
        return cls(found, sum(saved.values()))

    def add(self, p: Tensor, pieces: Sequence[Piece], size: int) -> None:
        """Compare gradients that a pass computed under :func:`alternate_signs`."""
        pieces, pair = merge_products(pieces), slice(0, 2)

        def differ(tile: tuple[slice, int]) -> None:
            rows, _ = tile
            self._differ(p, rows, sum_pieces(pieces, len(p) if p.dim() else 1, pair, rows), WEIGHT)

        for_each_tile(differ, p, pieces, 2)

    def add_plain(self, p: Tensor, found: Tensor) -> None:
        """Compare gradients [2, *shape] of the two samples under the plain score."""
        self._differ(p, slice(0, len(p) if p.dim() else 1), found, -WEIGHT)

    def _differ(self, p: Tensor, rows: slice, found: Tensor, weight: float) -> None:
        found = at_least_single(found)
        total = found[0].add(found[1], alpha=weight)
        if p in self.expected:
            expected = self.expected[p]
            total.sub_(expected if total.shape == expected.shape else expected[rows])
        if total.numel():
            self.differences.setdefault(p, []).append(total.abs_().max())
        else:
            self.differences.setdefault(p, []).append(total.new_zeros(()))

    def raise_mismatches(self) -> None:
        """Raise on gross errors (a layer used past its rule, samples mixed), not on rounding."""
        missed = next(
            (p for p in self.expected if p.numel() and p not in self.differences), None
        )  # its gradient may be 0 here only
        if missed is not None:
            raise Unsupported(_describe(missed))
        if not self.differences:
            return
        parameters = list(self.differences)
        worst = torch.stack([torch.stack(found).max().double() for found in self.differences.values()])
        largest = self.largest(parameters)
        allowed = torch.stack([_tolerance(p, most, largest.max()) for p, most in zip(parameters, largest, strict=True)])
        for index in (~(worst <= allowed)).nonzero().flatten().tolist():  # also where nothing can be compared: nan
            raise Mismatch(_describe(parameters[index]), parameters[index])

    def largest(self, parameters: list[Tensor]) -> Tensor:
        """Return max |expected| of each parameter."""
        zero = torch.zeros(())
        return torch.stack(
            [
                (self.expected[p].abs().max() if p in self.expected and p.numel() else zero.to(p.device)).double()
                for p in parameters
            ]
        )

    def find_untested(self) -> set[Tensor]:
        """Return parameters with zero gradients, of which these two samples prove nothing."""
        parameters = list(self.expected)
        return {p for p, most in zip(parameters, self.largest(parameters).tolist(), strict=True) if most == 0.0}


class OrderCheck:
    """A check that a pass takes each sample's gradient for that sample, over a few samples.

    Plain autograd differentiates sum_n w_n score_n over the samples as one batch, whatever their
    order in the model; a pass multiplies the gradients that it takes for sample n by w_n.
    """

    def __init__(self, model: nn.Module, trainable: set[Tensor], score: LogLikelihood, batch: SampleBatch) -> None:
        parameters = [p for p in model.parameters() if p in trainable]
        values = score(call_model(model, batch), batch.target)
        self.weights = torch.linspace(-1.0, WEIGHT, batch.size).to(values)
        found = torch.autograd.grad((values * self.weights).sum(), parameters, allow_unused=True)
        self.expected: dict[Tensor, Tensor] = {
            p: at_least_single(to_dense(g)) for p, g in zip(parameters, found, strict=True) if g is not None
        }
        self.scale = max((g.abs().max().double() for g in self.expected.values() if g.numel()), default=torch.zeros(()))

    def add(self, p: Tensor, pieces: Sequence[Piece], size: int) -> None:
        """Raise :class:`Mismatch` unless the weighted sum of a pass's gradients is autograd's."""
        pieces, height, expected = merge_products(pieces), len(p) if p.dim() else 1, self.expected.get(p)
        if not p.numel() or expected is None:
            return
        differences: list[Tensor] = []

        def differ(tile: tuple[slice, int]) -> None:
            rows, block = tile
            difference = (expected if rows == slice(0, height) else expected[rows]).clone()
            for start in range(0, size, block):
                samples = slice(start, min(start + block, size))
                found = at_least_single(sum_pieces(pieces, height, samples, rows))
                difference -= torch.tensordot(self.weights[samples].to(found.dtype), found, 1).view(difference.shape)
            differences.append(difference.abs().max())

        for_each_tile(differ, p, pieces, size)
        if not torch.stack(differences).max() <= _tolerance(p, expected.abs().max(), self.scale):
            raise Mismatch(_describe(p), p)


def draw_samples(chunk: SampleBatch) -> SampleBatch:
    """Return some samples of a chunk in random order, the same in every call."""
    order = torch.randperm(chunk.size, generator=torch.Generator().manual_seed(chunk.size))[:DRAWN]
    return chunk.map_samples(lambda leaf: leaf[order.to(leaf.device)], len(order))


class Mismatch(Unsupported):
    """A pass gives another gradient than autograd for ``parameter``."""

    def __init__(self, words: str, parameter: Tensor) -> None:
        super().__init__(words)
        self.parameter = parameter


def _describe(p: Tensor) -> str:
    return f"a parameter of shape {tuple(p.shape)} is used in a way that hooks do not see"


def _tolerance(p: Tensor, largest: Tensor, scale: Tensor) -> Tensor:
    """Return the allowed difference: a hundredth in squares, and noise of gradients that cancel.

    The gradient of a bias before a norm, say, is noise of about 1e-6 of the largest gradient on a
    CPU, and 1e-3 on a GPU, where single precision may be cut to ten bits.
    """
    single = p.dtype in (torch.float32, torch.float64)
    if single:
        return 0.005 * largest + (1e-5 if p.device.type == "cpu" else 3e-3) * scale
    return 0.1 * largest + 1.4e-2 * scale


@contextmanager
def _count_saved(model: nn.Module) -> Iterator[dict[int, int]]:
    """Count floats saved for backward by the code within, by storage; parameters do not count."""
    known = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in known:
            kept[place] = max(kept.get(place, 0), tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept
