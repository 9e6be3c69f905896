"""The fast pass: one backward pass without weight gradients; layers are summed one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tmln.curvature.batches import SampleBatch, call_model, total_log_likelihood
from tmln.curvature.crosscheck import Unsupported
from tmln.curvature.functional import module_gradients, sample_dims
from tmln.curvature.layer_rules import Rule, compute_attention, is_plain_attention, rule_for
from tmln.curvature.lazy_gradients import Computed, Piece, Product
from tmln.curvature.likelihoods import LogLikelihood
from tmln.curvature.square_sums import SQUARE, GradientSums, Magnitude


class GradientConsumer(Protocol):
    """A receiver of all per-sample gradients of a parameter, as soon as they are known."""

    def add(self, p: Tensor, pieces: list[Piece], size: int) -> None: ...


@dataclass(frozen=True)
class Unit:
    """A module differentiated by a rule, by vmap over it (rule None), or in its products."""

    module: nn.Module
    rule: Rule | None
    decomposed: bool = False  # attention, whose products are seen one by one


def model_units(model: nn.Module, trainable: set[Tensor], whole: frozenset[nn.Module] = frozenset()) -> Iterator[Unit]:
    """Yield the modules that own trainable parameters; a module without a rule is taken whole."""
    return _walk(model, trainable, whole, set())


def _walk(
    module: nn.Module, trainable: set[Tensor], whole: frozenset[nn.Module], seen: set[nn.Module]
) -> Iterator[Unit]:
    if module in seen:
        return
    seen.add(module)
    own = {p for p in module.parameters(recurse=False) if p in trainable}
    if is_plain_attention(module) or module in whole:
        if any(p in trainable for p in module.parameters()):
            yield Unit(module, None, decomposed=module not in whole)
        return
    rule = rule_for(module)
    if own and rule is None and not own <= {p for child in module.children() for p in child.parameters()}:
        yield Unit(module, None)
        return
    if own and rule is not None:
        yield Unit(module, rule)
    for child in module.children():
        yield from _walk(child, trainable, whole, seen)


@dataclass
class HookPass:
    """Sums of per-sample gradient magnitudes of ``score(model(x), y)``, a chunk at a time."""

    model: nn.Module
    trainable: set[Tensor]
    score: LogLikelihood
    whole: frozenset[nn.Module] = frozenset()  # modules that rules do not see through: by vmap over each
    size: Magnitude = SQUARE
    found: list[Unit] = field(init=False)
    # Which arguments of each call of a module by vmap all samples shared when this pass was
    # checked: they may be as long as a later chunk.
    shared: dict[int, set[int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.found = list(model_units(self.model, self.trainable, self.whole))

    def __call__(self, batch: SampleBatch) -> dict[Tensor, Tensor]:
        sums = GradientSums(self.size)
        self.add(batch, sums)
        return sums.values

    def add(
        self,
        batch: SampleBatch,
        *takers: GradientConsumer,
        score: LogLikelihood | None = None,
        watch: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Give each parameter's per-sample gradients over ``batch`` to every consumer.

        ``score`` replaces the own one, ``watch`` is entered for the forward pass.
        """
        if any(unit.rule is None and unit.module is self.model and not unit.decomposed for unit in self.found):
            raise Unsupported(f"{type(self.model).__name__} uses parameters of its own")
        trace = _Trace(batch.size, self.trainable, takers, self.shared)
        with ExitStack() as stack:
            stack.callback(trace.forget)
            for unit in self.found:
                stack.callback(trace.attach(unit))
            for p in [p for p in self.model.parameters() if p.requires_grad]:
                stack.callback(p.requires_grad_, True)  # no weight gradients in the backward pass: the rules make them
                p.requires_grad_(False)
            with watch():
                total = total_log_likelihood(score or self.score, call_model(self.model, batch), batch.target)
            trace.recording = False
            if not total.requires_grad:
                raise Unsupported("no layer that it knows leads to the output")
            torch.autograd.grad(total, trace.roots, allow_unused=True)
            trace.finish()


class _Trace:
    """One chunk's pass: the input of each layer, and the gradients that have arrived so far."""

    def __init__(
        self, size: int, trainable: set[Tensor], takers: tuple[GradientConsumer, ...], shared: dict[int, set[int]]
    ) -> None:
        self.size, self.shared = size, shared
        self.trainable = trainable
        self.takers = takers
        self.recording = True
        self.roots: list[Tensor] = []
        self.open_uses: Counter[Tensor] = Counter()  # uses of a parameter whose gradient has not come back
        self.pending: dict[Tensor, list[Piece]] = {}
        self.generic: list[tuple[Unit, tuple[Any, ...], dict[str, Any], list[Tensor | None]]] = []

    def attach(self, unit: Unit) -> Callable[[], None]:
        """Observe the unit; return the function that ends it."""
        if unit.decomposed:
            assert isinstance(unit.module, nn.MultiheadAttention)
            vars(unit.module)["forward"] = partial(compute_attention, unit.module, self.linear)
            return partial(vars(unit.module).pop, "forward", None)
        hook = partial(self.forward, unit)
        return unit.module.register_forward_hook(hook, prepend=True, with_kwargs=True).remove

    def forward(self, unit: Unit, module: nn.Module, args: tuple[Any, ...], kwargs: Any, output: Any) -> Any:
        if not (self.recording and torch.is_grad_enabled()):
            return None
        given = [x for x in (*args, *kwargs.values()) if x is not None]
        if unit.rule is None or len(given) != 1 or not isinstance(given[0], Tensor) or not isinstance(output, Tensor):
            return self._watch_generic(unit, args, kwargs, output)
        a: Tensor = given[0]
        owned = {name: p for name, p in module.named_parameters(recurse=False) if p in self.trainable}
        self.open_uses.update(owned.values())
        output = self._attach_root(output)
        if self.size > 1 and a.shape[:1] == output.shape[:1] == (1,):
            # One for all samples, as the embeddings of positions: each gets its own, so that
            # gradients are not added up
            a, output = a.expand(self.size, *a.shape[1:]), output.expand(self.size, *output.shape[1:])
        output.register_hook(partial(self._receive_gradient, unit, list(owned), a.detach(), a._version))
        return output

    def linear(self, weight: Tensor, bias: Tensor | None, rows: slice, a: Tensor) -> Tensor:
        """Compute F.linear with some rows of a weight (or bias alone) and expect its gradient."""
        plain = bias is None or rows.stop - rows.start == len(bias)
        part = bias if plain or bias is None else bias[rows]
        if not len(weight):
            assert part is not None
            output = a + part
        else:
            output = F.linear(a, weight if rows.stop - rows.start == len(weight) else weight[rows], part)
        owned = [p for p in (weight, bias) if p is not None and p in self.trainable]
        if not (owned and self.recording and torch.is_grad_enabled()):
            return output
        self.open_uses.update(owned)
        output, version = self._attach_root(output), a._version

        def receive(g: Tensor) -> None:
            _check_unchanged(a, version, "MultiheadAttention")
            g, seen = self._by_sample(g.detach(), False), self._by_sample(a.detach(), False)
            for p in owned:
                self._collect(p, Product(g, seen, rows.start) if p is weight else _padded_sum(g, rows, len(p)))

        output.register_hook(receive)
        return output

    def _attach_root(self, output: Tensor) -> Tensor:
        if output.requires_grad:
            return output
        root = output.detach().requires_grad_()
        self.roots.append(root)
        return root.clone()  # a leaf could not be changed in place by the layer that follows

    def _receive_gradient(self, unit: Unit, names: list[str], a: Tensor, version: int, g: Tensor) -> None:
        assert unit.rule is not None
        module, rule = unit.module, unit.rule
        _check_unchanged(a, version, type(module).__name__)
        try:
            a, g = self._by_sample(a, rule.folds), self._by_sample(g.detach(), rule.folds)
        except Unsupported as reason:
            raise Unsupported(str(reason), module) from None
        for name, piece in rule.pieces(module, names, a, g):
            self._collect(getattr(module, name), piece)

    def _by_sample(self, x: Tensor, folds: bool) -> Tensor:
        if x.dim() and len(x) == self.size:
            return x
        if folds and x.dim() and len(x) % self.size == 0:
            return x.reshape(self.size, -1, *x.shape[1:])
        raise Unsupported(f"a layer sees {tuple(x.shape)}, in which {self.size} samples are not along dim 0")

    def _collect(self, p: Tensor, piece: Piece) -> None:
        """Pass on a parameter's gradients with the last of its uses, which are summed."""
        self.open_uses[p] -= 1
        pieces = [*self.pending.pop(p, []), piece]
        if self.open_uses[p] > 0:
            self.pending[p] = pieces
            return
        for taker in self.takers:
            taker.add(p, pieces, self.size)

    def _watch_generic(self, unit: Unit, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        self.open_uses.update(p for p in unit.module.parameters() if p in self.trainable)
        leaves, form = pytree.tree_flatten(output)
        grads: list[Tensor | None] = [None] * len(leaves)
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                leaf = self._attach_root(leaf)
                if self.size > 1 and leaf.shape[:1] == (1,):
                    leaf = leaf.expand(self.size, *leaf.shape[1:])
                leaf.register_hook(partial(grads.__setitem__, i))
                leaves[i], grads[i] = leaf, torch.zeros_like(leaf)
        self.generic.append((unit, args, kwargs, grads))
        return pytree.tree_unflatten(leaves, form)

    def finish(self) -> None:
        for number, (unit, args, kwargs, grads) in enumerate(self.generic):
            leaves = pytree.tree_leaves((args, kwargs))
            dims = sample_dims(leaves, self.size)
            longer = {k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and dims[k] is None and leaf.dim()}
            shared = self.shared.setdefault(number, {k for k in longer if len(leaves[k]) > 1})
            dims = [None if k in shared else dim for k, dim in enumerate(dims)]
            try:
                found = module_gradients(unit.module, self.trainable, args, kwargs, grads, dims)
                for p, value in found:
                    self._collect(p, Computed(value.__getitem__, p.numel()))
            except Exception as reason:
                raise Unsupported(str(reason).split("\n")[0], unit.module) from None
        for p, pieces in self.pending.items():  # some of their uses led nowhere
            for taker in self.takers:
                taker.add(p, pieces, self.size)

    def forget(self) -> None:
        """Drop the activations: their graph holds hooks that hold this trace, a reference cycle."""
        self.roots.clear()
        self.generic.clear()
        self.pending.clear()


def _check_unchanged(a: Tensor, version: int, layer: str) -> None:
    if a._version != version:
        raise Unsupported(f"the input of a {layer} is overwritten in place")


def _padded_sum(g: Tensor, rows: slice, height: int) -> Piece:
    return Computed(lambda n: F.pad(g[n].sum(1), (rows.start, height - rows.stop)), g[0].numel())
