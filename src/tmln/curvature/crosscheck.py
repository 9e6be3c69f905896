"""The check of a way: two samples, each alone through plain autograd, against what the way makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from tmln.curvature.batches import Batch, call_model
from tmln.curvature.data_dependence import Unsupported
from tmln.curvature.functional import LoopPass
from tmln.curvature.kfac_layers import at_least_single
from tmln.curvature.lazy_gradients import Piece, gradients, merged
from tmln.curvature.likelihoods import LogLikelihood
from tmln.curvature.square_sums import each_tile

# The two samples' gradients are compared as g_0 - WEIGHT * g_1. The sign is in the score of the chunk that they are in,
# so that samples that are alike cannot be mixed unseen; sizes do not see it. Any other weight than 1 will do.
WEIGHT = 1.6180339887

# Samples of a chunk that are checked in another order besides: a model that reorders them on the way, and uses a layer
# before and after, may leave the first two in their places.
DRAWN = 8


def signed(score: LogLikelihood, output: object, target: object) -> Tensor:
    """The score with every second sample's sign turned."""
    values = score(output, target)
    return values * (1.0 - 2.0 * (torch.arange(len(values), device=values.device) % 2)).to(values.dtype)


@dataclass
class Witness:
    """What plain autograd says about the first two samples of a chunk, and how far a way is from it."""

    expected: dict[Tensor, Tensor]
    saved: int  # floats that one sample's forward pass keeps for its backward pass
    differences: dict[Tensor, list[Tensor]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: nn.Module, trainable: set[Tensor], score: LogLikelihood, pair: Batch) -> Witness:
        loop = LoopPass(model, trainable, score)  # a wrong model, target or loss raises here, in plain words
        first, second = pair.chunks(1)
        with _counted(model) as saved:
            found = {p: at_least_single(gradient) for p, gradient in loop.gradients(first)}
        for p, gradient in loop.gradients(second):  # never in place: autograd may give one tensor to two parameters
            gradient = at_least_single(gradient)
            found[p] = found[p].sub(gradient, alpha=WEIGHT) if p in found else gradient * -WEIGHT
        return cls(found, sum(saved.values()))

    def add(self, p: Tensor, pieces: Sequence[Piece], size: int) -> None:
        """Gradients that a pass has found for a chunk whose score is :func:`signed`."""
        pieces, pair = merged(pieces), slice(0, 2)

        def differ(tile: tuple[slice, int]) -> None:
            rows, _ = tile
            self._differ(p, rows, gradients(pieces, len(p) if p.dim() else 1, pair, rows), WEIGHT)

        each_tile(differ, p, pieces, 2)

    def add_plain(self, p: Tensor, found: Tensor) -> None:
        """Gradients [2, *shape] of the two samples under the plain score."""
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

    def judge(self) -> None:
        """Gross errors only (a layer used past its rule, samples mixed): rounding is not judged here."""
        missed = next(
            (p for p in self.expected if p.numel() and p not in self.differences), None
        )  # its gradient may be 0 here only
        if missed is not None:
            raise Unsupported(_words(missed))
        if not self.differences:
            return
        parameters = list(self.differences)
        worst = torch.stack([torch.stack(found).max().double() for found in self.differences.values()])
        largest = self.largest(parameters)
        allowed = torch.stack([_allowed(p, most, largest.max()) for p, most in zip(parameters, largest, strict=True)])
        for index in (~(worst <= allowed)).nonzero().flatten().tolist():  # also where nothing can be compared: nan
            raise Mismatch(_words(parameters[index]), parameters[index])

    def largest(self, parameters: list[Tensor]) -> Tensor:
        """max |expected| of each."""
        zero = torch.zeros(())
        return torch.stack(
            [
                (self.expected[p].abs().max() if p in self.expected and p.numel() else zero.to(p.device)).double()
                for p in parameters
            ]
        )

    def silent(self) -> set[Tensor]:
        """Parameters whose use these two samples prove nothing about."""
        parameters = list(self.expected)
        return {p for p, most in zip(parameters, self.largest(parameters).tolist(), strict=True) if most == 0.0}


class Order:
    """Weighted sums of per-sample gradients over a few samples: each must have been taken for the right sample.

    Plain autograd differentiates sum_n w_n score_n over the same samples as one batch, whatever their order on the way;
    a pass weights the gradients that it takes for those of sample n.
    """

    def __init__(self, model: nn.Module, trainable: set[Tensor], score: LogLikelihood, batch: Batch) -> None:
        parameters = [p for p in model.parameters() if p in trainable]
        values = score(call_model(model, batch), batch.target)
        self.weights = torch.linspace(-1.0, WEIGHT, batch.size).to(values)
        found = torch.autograd.grad((values * self.weights).sum(), parameters, allow_unused=True)
        self.expected: dict[Tensor, Tensor] = {
            p: at_least_single(g) for p, g in zip(parameters, found, strict=True) if g is not None
        }
        self.scale = max((g.abs().max().double() for g in self.expected.values() if g.numel()), default=torch.zeros(()))

    def add(self, p: Tensor, pieces: Sequence[Piece], size: int) -> None:
        """Raise :class:`Mismatch` unless the weighted sum of a pass's gradients is that of autograd."""
        pieces, height, expected = merged(pieces), len(p) if p.dim() else 1, self.expected.get(p)
        if not p.numel() or expected is None:
            return
        differences: list[Tensor] = []

        def differ(tile: tuple[slice, int]) -> None:
            rows, block = tile
            difference = (expected if rows == slice(0, height) else expected[rows]).clone()
            for start in range(0, size, block):
                samples = slice(start, min(start + block, size))
                found = at_least_single(gradients(pieces, height, samples, rows))
                difference -= torch.tensordot(self.weights[samples].to(found.dtype), found, 1).view(difference.shape)
            differences.append(difference.abs().max())

        each_tile(differ, p, pieces, size)
        if not torch.stack(differences).max() <= _allowed(p, expected.abs().max(), self.scale):
            raise Mismatch(_words(p), p)


def draw(chunk: Batch) -> Batch:
    """Return some samples of a chunk in an order of their own, alike every time."""
    order = torch.randperm(chunk.size, generator=torch.Generator().manual_seed(chunk.size))[:DRAWN]
    return chunk.map_samples(lambda leaf: leaf[order.to(leaf.device)], len(order))


class Mismatch(Unsupported):
    """A way that gives another gradient than autograd for ``parameter``."""

    def __init__(self, words: str, parameter: Tensor) -> None:
        super().__init__(words)
        self.parameter = parameter


def _words(p: Tensor) -> str:
    return f"a parameter of shape {tuple(p.shape)} is used in a way that hooks do not see"


def _allowed(p: Tensor, largest: Tensor, scale: Tensor) -> Tensor:
    """A hundredth, in squares. What should cancel, as the gradient of a bias before a norm, is noise: about 1e-6 of the
    largest gradient on a CPU; on a GPU, where single precision may be cut to ten bits, 1e-3."""
    single = p.dtype in (torch.float32, torch.float64)
    if single:
        return 0.005 * largest + (1e-5 if p.device.type == "cpu" else 3e-3) * scale
    return 0.1 * largest + 1.4e-2 * scale


@contextmanager
def _counted(model: nn.Module) -> Iterator[dict[int, int]]:
    """Floats kept for the backward pass by the code within, by the memory that they lie in; parameters do not count."""
    known = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in known:
            kept[place] = max(kept.get(place, 0), tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept
