"""Selection of a pass for per-sample gradients: hooks where exact, else vmap, else a loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from tmln.curvature.batches import SampleBatch, batch_signature, concatenate_batches, find_sample_arguments
from tmln.curvature.crosscheck import (
    Mismatch,
    NoDataDependence,
    OrderCheck,
    PairCheck,
    Unsupported,
    alternate_signs,
    draw_samples,
)
from tmln.curvature.functional import LoopPass, VmapPass
from tmln.curvature.hooks import HookPass
from tmln.curvature.likelihoods import LogLikelihood
from tmln.curvature.square_sums import SQUARE, GradientSums, Keep, Magnitude

logger = logging.getLogger("tmln.curvature")

PASSES = ("hooks", "vmap", "loop")
RETRIES = 3  # how often a module that rules do not see through is taken whole, with all that is in it


@dataclass
class SelectedPass:
    """A pass that agreed with plain autograd, its floats a sample, and untested parameters."""

    strategy: str
    run: HookPass | VmapPass | LoopPass
    floats: int = 0
    untested: set[Tensor] = field(default_factory=set)
    ordered: bool = True  # or hooks have been checked on two samples only, which are hardly ever reordered


class PassSelector:
    """Sums of per-sample gradient magnitudes, by the fastest pass that agrees with plain autograd.

    Every instance selects a pass for each kind of batch: what a forward pass does may depend
    on anything, an attribute, a closure, the shapes. The first two samples of the first chunk are
    checked, and the chunk is used if it passes; a few more are drawn to see whether samples are
    reordered. A single sample proves nothing, since no pass can mix it: it goes through the loop
    until a second one of its kind has come.

    Args:
        model: the model.
        trainable: parameters to differentiate.
        score: the log-likelihood.
        chunk: ``chunk(floats)`` returns how many samples of that many floats go together.
        label: adds drawn targets to a batch.
        label_again: the same, of draws that do not count.
        size: the magnitude that is summed.
        keep: what of a parameter's sums stays in this process.
    """

    def __init__(
        self,
        model: nn.Module,
        trainable: set[Tensor],
        score: LogLikelihood,
        chunk: Callable[[int], int],
        label: Callable[[SampleBatch], SampleBatch],
        label_again: Callable[[SampleBatch], SampleBatch],
        size: Magnitude = SQUARE,
        keep: Keep | None = None,
    ) -> None:
        self.model, self.trainable, self.score, self.size = model, trainable, score, size
        self.chunk, self.label, self.label_again = chunk, label, label_again
        self.keep = keep
        self.sums = GradientSums(size, keep)
        self.selected_by_kind: dict[Any, SelectedPass] = {}
        self.reached = False  # plain autograd has given some parameter a gradient, be it zero
        self.loop = LoopPass(model, trainable, score, size)
        self._shared: dict[Any, tuple[bool, ...]] = {}  # what was found out by _find_shared_arguments
        self._alone: tuple[Any, SampleBatch] | None = (
            None  # the last sample that came alone, only one: they may be large
        )

    @property
    def slowest(self) -> str:
        """Return the slowest pass selected so far."""
        found = {selected.strategy for selected in self.selected_by_kind.values()}
        return next((name for name in reversed(PASSES) if name in found), "loop")

    def add(self, batch: SampleBatch) -> None:
        """Add the sizes of every sample's gradients."""
        batch = self._find_shared_arguments(batch)
        kind = batch_signature(batch)
        if kind not in self.selected_by_kind:
            batch = self._select(kind, batch)
        selected = self.selected_by_kind.get(kind) or SelectedPass("loop", self.loop)
        for chunk in batch.chunks(self.chunk(selected.floats)):
            self._add_chunk(selected, self.label(chunk))

    def _find_shared_arguments(self, batch: SampleBatch) -> SampleBatch:
        """Find out which arguments all samples share, where one is as long as the batch."""
        if batch.size == 1 or sum(batch.by_sample) < 2:
            return batch
        key = batch_signature(batch), batch.size
        if key not in self._shared:
            self._shared[key] = find_sample_arguments(self.model, self.score, batch, self.label_again)
        return replace(batch, by_sample=self._shared[key])

    def _hooks(self, whole: frozenset[nn.Module] = frozenset()) -> HookPass:
        return HookPass(self.model, self.trainable, self.score, whole, self.size)

    def _select(self, kind: Any, batch: SampleBatch) -> SampleBatch:
        """Select a pass for a new kind of batch; return what is left of the batch."""
        if batch.size == 1:
            known, other = self._alone or (None, batch)
            self._alone = (kind, batch)
            if known == kind:
                pair = self.label_again(concatenate_batches(other, batch))
                check = PairCheck.of(self.model, self.trainable, self.score, pair)
                run = self._hooks()
                self.selected_by_kind[kind] = self._find_pass(pair, check, GradientSums(self.size, self.keep), run)
            return batch
        first = batch[:2]
        pair = self.label(first)
        check = PairCheck.of(self.model, self.trainable, self.score, pair)
        self.reached |= bool(check.expected)
        run = self._hooks()
        size = self.chunk(_count_floats(run, check))
        chunk = pair
        if size > 2 and batch.size > 2:
            chunk = batch[:size] if pair is first else concatenate_batches(pair, self.label(batch[2:size]))
        sums = GradientSums(self.size, self.keep)
        selected = self.selected_by_kind[kind] = self._find_pass(chunk, check, sums, run)
        if selected.strategy == "hooks":
            self.sums.merge(sums)
        elif pair is first:  # nothing was drawn: all of the batch goes that way
            return batch
        else:
            for part in chunk.chunks(self.chunk(selected.floats)):
                self._add_chunk(selected, part)
        return batch[chunk.size :]

    def _find_pass(self, chunk: SampleBatch, check: PairCheck, sums: GradientSums, run: HookPass) -> SelectedPass:
        """Return the fastest pass that agrees with autograd on two samples; hooks fill ``sums``."""
        whole: frozenset[nn.Module] = frozenset()
        message = ""
        for _ in range(1 + RETRIES):
            run = self._hooks(whole) if whole else run
            try:
                sums.values.clear()
                check.differences.clear()
                run.add(chunk, sums, check, score=partial(alternate_signs, self.score), watch=NoDataDependence)
                check.raise_mismatches()
                self._check_order(run, chunk)
            except Exception as reason:
                message = message or str(reason)
                larger = self._enclosing_module(reason)
                if larger is None:
                    break
                whole |= {larger}
                continue
            return SelectedPass("hooks", run, _count_floats(run, check), check.find_untested(), chunk.size > 2)
        return self._without_hooks(chunk[:2], check, message)

    def _enclosing_module(self, reason: Exception) -> nn.Module | None:
        """Return the module around the one that ``reason`` is about, unless that is the model."""
        culprit = reason.culprit if isinstance(reason, Unsupported) else None
        if isinstance(reason, Mismatch):
            wrong = reason.parameter
            owners = [m for m in self.model.modules() if any(p is wrong for p in m.parameters(recurse=False))]
            culprit = owners[0] if len(owners) == 1 else None
        around = [m for m in self.model.modules() if culprit is not None and any(c is culprit for c in m.children())]
        return around[0] if len(around) == 1 and around[0] is not self.model else None

    def _without_hooks(self, pair: SampleBatch, check: PairCheck, message: str) -> SelectedPass:
        run = VmapPass(self.model, self.trainable, self.score, self.size)
        selected = SelectedPass("vmap", run, 3 * sum(p.numel() for p in self.trainable))
        try:
            check.differences.clear()
            for p, value in run.gradients(pair).items():
                check.add_plain(p, value)
            check.raise_mismatches()
        except Exception as reason:
            selected, message = SelectedPass("loop", self.loop), str(reason)
        _log_once(type(self.model).__name__, selected.strategy, message.split("\n")[0])
        return selected

    def _check_order(self, run: HookPass, chunk: SampleBatch) -> None:
        """Raise unless hooks take gradients for the right samples; for chunks of more than two."""
        if chunk.size > 2:
            drawn = draw_samples(chunk)
            run.add(drawn, OrderCheck(self.model, self.trainable, self.score, drawn))

    def _slow_down(self, selected: SelectedPass, chunk: SampleBatch, reason: Exception) -> None:
        """Continue without hooks, which turned out to be wrong on this chunk."""
        slower = SelectedPass("loop", self.loop)
        if chunk.size > 1:
            check = PairCheck.of(self.model, self.trainable, self.score, chunk[:2])
            slower = self._without_hooks(chunk[:2], check, str(reason))
        selected.strategy, selected.run, selected.floats, selected.untested = (
            slower.strategy,
            slower.run,
            slower.floats,
            set(),
        )
        selected.ordered = True

    def _add_chunk(self, selected: SelectedPass, chunk: SampleBatch) -> None:
        if isinstance(selected.run, HookPass) and not selected.ordered and chunk.size > 2:
            try:
                self._check_order(selected.run, chunk)
                selected.ordered = True
            except Exception as reason:
                self._slow_down(selected, chunk, reason)
        if isinstance(selected.run, HookPass) and not selected.untested:
            selected.run.add(chunk, self.sums)
            return
        found = selected.run(chunk)
        self.reached |= selected.strategy == "loop" and bool(found)
        moving = {p for p in selected.untested if p in found and bool(found[p].any())}
        if moving:
            found = self._recheck_untested(selected, chunk, found, moving)
        self.sums.add_sums(found)

    def _recheck_untested(
        self, selected: SelectedPass, chunk: SampleBatch, found: dict[Tensor, Tensor], moving: set[Tensor]
    ) -> dict[Tensor, Tensor]:
        """Check again with parameters that had zero gradients; return the chunk's true sums."""
        expected = self.loop(chunk)
        try:
            _compare(found, expected, self.size)
            selected.untested -= moving
        except Unsupported as reason:
            self._slow_down(selected, chunk, reason)
        return expected


def _count_floats(run: HookPass, check: PairCheck) -> int:
    """Return floats a sample: what autograd saves, twice, and whole per-sample gradients, twice."""
    whole = {p for unit in run.found if unit.rule is None and not unit.decomposed for p in unit.module.parameters()}
    return 2 * check.saved + 2 * sum(p.numel() for p in whole if p in run.trainable)


def _compare(found: dict[Tensor, Tensor], expected: dict[Tensor, Tensor], size: Magnitude = SQUARE) -> None:
    """Raise unless sums over many samples agree, up to the tolerance of two samples' check."""
    scale = max((float(value.max()) for value in expected.values() if value.numel()), default=0.0)
    for p in found.keys() | expected.keys():
        a = found.get(p, torch.zeros_like(p))
        b = expected.get(p, torch.zeros_like(p))
        single = p.dtype in (torch.float32, torch.float64)
        noise = (1e-8 if single and p.device.type == "cpu" else 1e-3) ** (size.power / 2)
        allowed = (0.01 if single else 0.2) * (float(b.max()) + noise * scale) if b.numel() else 0.0
        if b.numel() and not float((a - b).abs().max()) <= allowed:
            raise Unsupported(f"a parameter of shape {tuple(p.shape)} is used in a way that hooks do not see")


@cache
def _log_once(model: str, way: str, reason: str) -> None:
    logger.warning("per-sample gradients: %s goes by %s, which is slower (%s)", model, way, reason)
