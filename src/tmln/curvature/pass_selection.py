"""Which way to per-sample gradients fits a model: hooks where they are exact, else vmap, else one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from tmln.curvature.batches import Batch, batch_signature, concatenate_batches
from tmln.curvature.crosscheck import Mismatch, Order, Witness, draw, signed
from tmln.curvature.data_dependence import NoDataDependence, Unsupported
from tmln.curvature.functional import LoopPass, VmapPass
from tmln.curvature.hooks import HookPass
from tmln.curvature.likelihoods import LogLikelihood
from tmln.curvature.reductions import SQUARED, Size
from tmln.curvature.shared_arguments import tell_apart
from tmln.curvature.square_sums import Keep, Sums

logger = logging.getLogger("tmln.curvature")

WAYS = ("hooks", "vmap", "loop")
RETRIES = 3  # how often a module that rules do not see through is taken whole, with all that is in it


@dataclass
class Verdict:
    """A way that agreed with plain autograd, its floats a sample, and what the check's gradients left unproven."""

    way: str
    run: HookPass | VmapPass | LoopPass
    floats: int = 0
    silent: set[Tensor] = field(default_factory=set)
    ordered: bool = True  # or hooks have been checked on two samples only, which are hardly ever reordered


class Ways:
    """Sums of the sizes of per-sample gradients, each kind of batch by the fastest way that agrees with plain autograd.

    A way is found anew by every instance, on two samples of each kind: what a forward pass does may hang on anything,
    an attribute, a closure, the shapes. They are those of the first chunk, which is used if it stands the test; a few
    more of it are drawn to see whether samples are reordered on the way. A batch of one sample proves nothing, since no
    way can mix its samples: it goes by the loop until a second one of its kind has come.
    """

    def __init__(
        self,
        model: nn.Module,
        trainable: set[Tensor],
        score: LogLikelihood,
        chunk: Callable[[int], int],
        label: Callable[[Batch], Batch],
        label_again: Callable[[Batch], Batch],
        size: Size = SQUARED,
        keep: Keep | None = None,
    ) -> None:
        """``chunk(floats)`` samples go together; ``label`` draws targets, ``label_again`` some that are not counted.

        ``keep`` says what of a parameter's sums stays.
        """
        self.model, self.trainable, self.score, self.size = model, trainable, score, size
        self.chunk, self.label, self.label_again = chunk, label, label_again
        self.keep = keep
        self.sums = Sums(size, keep)
        self.verdicts: dict[Any, Verdict] = {}
        self.reached = False  # plain autograd has given some parameter a gradient, be it zero
        self.loop = LoopPass(model, trainable, score, size)
        self._shared: dict[Any, tuple[bool, ...]] = {}  # what was found out by _tell_apart
        self._alone: tuple[Any, Batch] | None = None  # the last sample that came alone, only one: they may be large

    @property
    def slowest(self) -> str:
        """The way of all, or the slowest of several."""
        found = {verdict.way for verdict in self.verdicts.values()}
        return next((way for way in reversed(WAYS) if way in found), "loop")

    def add(self, batch: Batch) -> None:
        """Add the sizes of every sample's gradients."""
        batch = self._tell_apart(batch)
        kind = batch_signature(batch)
        if kind not in self.verdicts:
            batch = self._met(kind, batch)
        verdict = self.verdicts.get(kind) or Verdict("loop", self.loop)
        for chunk in batch.chunks(self.chunk(verdict.floats)):
            self._take(verdict, self.label(chunk))

    def _tell_apart(self, batch: Batch) -> Batch:
        """Find out which arguments are shared by all samples, where one may be as long as the batch by chance."""
        if batch.size == 1 or sum(batch.by_sample) < 2:
            return batch
        key = batch_signature(batch), batch.size
        if key not in self._shared:
            self._shared[key] = tell_apart(self.model, self.score, batch, self.label_again)
        return replace(batch, by_sample=self._shared[key])

    def _hooks(self, whole: frozenset[nn.Module] = frozenset()) -> HookPass:
        return HookPass(self.model, self.trainable, self.score, whole, self.size)

    def _met(self, kind: Any, batch: Batch) -> Batch:
        """Find a way for a new kind of batch; what is left of the batch when its first chunk has been used for that."""
        if batch.size == 1:
            known, other = self._alone or (None, batch)
            self._alone = (kind, batch)
            if known == kind:
                pair = self.label_again(concatenate_batches(other, batch))
                witness = Witness.of(self.model, self.trainable, self.score, pair)
                run = self._hooks()
                self.verdicts[kind] = self._find(pair, witness, Sums(self.size, self.keep), run)
            return batch
        first = batch[:2]
        pair = self.label(first)
        witness = Witness.of(self.model, self.trainable, self.score, pair)
        self.reached |= bool(witness.expected)
        run = self._hooks()
        size = self.chunk(_floats(run, witness))
        chunk = pair
        if size > 2 and batch.size > 2:
            chunk = batch[:size] if pair is first else concatenate_batches(pair, self.label(batch[2:size]))
        sums = Sums(self.size, self.keep)
        verdict = self.verdicts[kind] = self._find(chunk, witness, sums, run)
        if verdict.way == "hooks":
            self.sums.merge(sums)
        elif pair is first:  # nothing was drawn: all of the batch goes that way
            return batch
        else:
            for part in chunk.chunks(self.chunk(verdict.floats)):
                self._take(verdict, part)
        return batch[chunk.size :]

    def _find(self, chunk: Batch, witness: Witness, sums: Sums, run: HookPass) -> Verdict:
        """The fastest way that agrees with autograd on the first two samples of ``chunk``; hooks fill ``sums``."""
        whole: frozenset[nn.Module] = frozenset()
        words = ""
        for _ in range(1 + RETRIES):
            run = self._hooks(whole) if whole else run
            try:
                sums.values.clear()
                witness.differences.clear()
                run.add(chunk, sums, witness, score=partial(signed, self.score), watch=NoDataDependence)
                witness.judge()
                self._check_order(run, chunk)
            except Exception as reason:
                words = words or str(reason)
                larger = self._around(reason)
                if larger is None:
                    break
                whole |= {larger}
                continue
            return Verdict("hooks", run, _floats(run, witness), witness.silent(), chunk.size > 2)
        return self._without_hooks(chunk[:2], witness, words)

    def _around(self, reason: Exception) -> nn.Module | None:
        """The module around the one that ``reason`` is about, unless that is the model itself."""
        culprit = reason.culprit if isinstance(reason, Unsupported) else None
        if isinstance(reason, Mismatch):
            wrong = reason.parameter
            owners = [m for m in self.model.modules() if any(p is wrong for p in m._parameters.values())]
            culprit = owners[0] if len(owners) == 1 else None
        around = [m for m in self.model.modules() if culprit is not None and any(c is culprit for c in m.children())]
        return around[0] if len(around) == 1 and around[0] is not self.model else None

    def _without_hooks(self, pair: Batch, witness: Witness, words: str) -> Verdict:
        run = VmapPass(self.model, self.trainable, self.score, self.size)
        verdict = Verdict("vmap", run, 3 * sum(p.numel() for p in self.trainable))
        try:
            witness.differences.clear()
            for p, value in run.gradients(pair).items():
                witness.add_plain(p, value)
            witness.judge()
        except Exception as reason:
            verdict, words = Verdict("loop", self.loop), str(reason)
        _log_once(type(self.model).__name__, verdict.way, words.split("\n")[0])
        return verdict

    def _check_order(self, run: HookPass, chunk: Batch) -> None:
        """Raise unless hooks take gradients for those of the right samples; two samples are what Witness is for."""
        if chunk.size > 2:
            drawn = draw(chunk)
            run.add(drawn, Order(self.model, self.trainable, self.score, drawn))

    def _slow_down(self, verdict: Verdict, chunk: Batch, reason: Exception) -> None:
        """Hooks turned out to be wrong on this chunk: go on without them."""
        slower = Verdict("loop", self.loop)
        if chunk.size > 1:
            witness = Witness.of(self.model, self.trainable, self.score, chunk[:2])
            slower = self._without_hooks(chunk[:2], witness, str(reason))
        verdict.way, verdict.run, verdict.floats, verdict.silent = slower.way, slower.run, slower.floats, set()
        verdict.ordered = True

    def _take(self, verdict: Verdict, chunk: Batch) -> None:
        if isinstance(verdict.run, HookPass) and not verdict.ordered and chunk.size > 2:
            try:
                self._check_order(verdict.run, chunk)
                verdict.ordered = True
            except Exception as reason:
                self._slow_down(verdict, chunk, reason)
        if isinstance(verdict.run, HookPass) and not verdict.silent:
            verdict.run.add(chunk, self.sums)
            return
        found = verdict.run(chunk)
        self.reached |= verdict.way == "loop" and bool(found)
        moving = {p for p in verdict.silent if p in found and bool(found[p].any())}
        if moving:
            found = self._awake(verdict, chunk, found, moving)
        self.sums.add_whole(found)

    def _awake(
        self, verdict: Verdict, chunk: Batch, found: dict[Tensor, Tensor], moving: set[Tensor]
    ) -> dict[Tensor, Tensor]:
        """Parameters that stood still in the check move: it is repeated on this chunk, whose true sums return."""
        expected = self.loop(chunk)
        try:
            _compare(found, expected, self.size)
            verdict.silent -= moving
        except Unsupported as reason:
            self._slow_down(verdict, chunk, reason)
        return expected


def _floats(run: HookPass, witness: Witness) -> int:
    """A sample's: what autograd keeps, once more for gradients on their way, and whole per-sample gradients."""
    whole = {p for unit in run.found if unit.rule is None and not unit.apart for p in unit.module.parameters()}
    return 2 * witness.saved + 2 * sum(p.numel() for p in whole if p in run.trainable)


def _compare(found: dict[Tensor, Tensor], expected: dict[Tensor, Tensor], size: Size = SQUARED) -> None:
    """Sums over many samples, as roughly as :meth:`Witness.judge` looks at two."""
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
