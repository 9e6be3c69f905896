"""The fast pass: one forward, one backward without weight gradients, each layer summed as its gradient arrives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tmln.curvature.attention import as_self_attention, attention_gradients
from tmln.curvature.batches import Batch, LogLikelihood, call, total_log_likelihood
from tmln.curvature.functional import module_gradients
from tmln.curvature.kfac_layers import at_least_single
from tmln.curvature.rules import Rule, rule_for
from tmln.curvature.sizes import SQUARED, Size

# Floats in flight at a time: per-sample gradients and unfolded inputs of one block stay in the cache. Over the
# convolutions of the reduced ResNet18 at widths 20 and 64 (2-core Zen 4) blocks of 1 and 2 MB took about the same time,
# 8 MB 1.2x of it.
BLOCK = 2**19
# Above this many elements, adding squares sample by sample beats squaring a block and summing it.
LARGE = 2**14


class Unsupported(Exception):
    """This pass cannot do that model exactly."""


@dataclass(frozen=True)
class Unit:
    """A module whose parameters are differentiated together: by a rule, or by vmap over the module (rule None)."""

    module: nn.Module
    rule: Rule | None


def units(model: nn.Module, trainable: set[Tensor]) -> Iterator[Unit]:
    """Cut the model at the modules that own trainable parameters; what has no rule is taken whole."""
    return _walk(model, trainable, set())


def _walk(module: nn.Module, trainable: set[Tensor], seen: set[nn.Module]) -> Iterator[Unit]:
    if module in seen:
        return
    seen.add(module)
    if any(p in trainable for p in module._parameters.values() if p is not None):
        yield Unit(module, rule_for(module))
    else:
        for child in module.children():
            yield from _walk(child, trainable, seen)


@dataclass
class HookPass:
    """Sums of the sizes of per-sample gradients of ``score(model(x), y)``, a chunk of samples at a time."""

    model: nn.Module
    trainable: set[Tensor]
    score: LogLikelihood
    watch: Callable[[], AbstractContextManager[object]] = nullcontext  # entered for the forward pass
    size: Size = SQUARED
    floats_per_sample: int = field(default=0, init=False)  # of the last chunk: activations and what is held for them

    def __call__(self, batch: Batch) -> dict[Tensor, Tensor]:
        found = list(units(self.model, self.trainable))
        if any(unit.rule is None and unit.module is self.model for unit in found):
            raise Unsupported(f"{type(self.model).__name__} uses parameters of its own")
        trace = _Trace(batch.size, self.trainable, self.size)
        wants = [p for p in self.model.parameters() if p.requires_grad]
        with ExitStack() as stack:
            stack.callback(trace.forget)
            for unit in found:
                hook = partial(trace.forward, unit)
                handle = unit.module.register_forward_hook(hook, prepend=True, with_kwargs=True)
                stack.callback(handle.remove)
            for p in wants:  # no weight gradients in the backward pass: the rules make them
                stack.callback(p.requires_grad_, True)
                p.requires_grad_(False)
            with self.watch():
                total = total_log_likelihood(self.score, call(self.model, batch), batch.target)
            trace.recording = False
            if not total.requires_grad:
                raise Unsupported("no layer that it knows leads to the output")
            torch.autograd.grad(total, trace.roots, allow_unused=True)
            sums = trace.finish()
        self.floats_per_sample = trace.floats // max(1, batch.size)
        return sums


class _Trace:
    """One chunk's way through the model: which layer saw what, and what has been summed so far."""

    def __init__(self, samples: int, trainable: set[Tensor], size: Size = SQUARED) -> None:
        self.samples, self.size = samples, size
        self.trainable = trainable
        self.recording = True
        self.roots: list[Tensor] = []
        self.floats = 0
        self.uses: Counter[Tensor] = Counter()
        self.sums: dict[Tensor, Tensor] = {}
        self.pending: dict[Tensor, Tensor] = {}  # per-sample gradients of parameters that are used more than once
        self.generic: list[tuple[Unit, tuple[Any, ...], dict[str, Any], list[Tensor | None]]] = []

    def forward(self, unit: Unit, module: nn.Module, args: tuple[Any, ...], kwargs: Any, output: Any) -> Any:
        if not (self.recording and torch.is_grad_enabled()):
            return None
        owned = module.parameters() if unit.rule is None else module._parameters.values()
        self.uses.update(p for p in owned if p is not None and p in self.trainable)
        if unit.rule is None:
            return self._watch_generic(unit, args, kwargs, output)
        if len(args) != 1 or kwargs or not isinstance(output, Tensor):
            raise Unsupported(f"{type(module).__name__} is called in an unusual way")
        a: Tensor = args[0]
        output = self._rooted(output)
        output.register_hook(partial(self._arrived, unit, a.detach(), a._version))
        self.floats += a.numel() + 2 * output.numel()
        return output

    def _rooted(self, output: Tensor) -> Tensor:
        if output.requires_grad:
            return output
        root = output.detach().requires_grad_()
        self.roots.append(root)
        return root.clone()  # a leaf could not be changed in place by the layer that follows

    def _arrived(self, unit: Unit, a: Tensor, version: int, g: Tensor) -> None:
        assert unit.rule is not None
        module, rule = unit.module, unit.rule
        if a._version != version:
            raise Unsupported(f"the input of a {type(module).__name__} is overwritten in place")
        a, g = self._by_sample(a, rule), self._by_sample(g.detach(), rule)
        for name, gradient in (("weight", rule.weight), ("bias", rule.bias)):
            p = module._parameters.get(name)
            if p is None or p not in self.trainable:
                continue
            if self.uses[p] > 1:
                self._add_pending(p, gradient(module, a, g))
                continue
            direct = rule.sums(module, a, g, self.size) if rule.sums is not None and name == "weight" else None
            if direct is not None:
                self.sums[p] = direct
                continue
            floats = rule.workspace(module, a) if name == "weight" else g[0].numel()
            block = max(1, BLOCK // max(1, floats))
            for start in range(0, self.samples, block):
                rows = slice(start, start + block)
                self._add(p, gradient(module, a[rows], g[rows]))

    def _by_sample(self, x: Tensor, rule: Rule) -> Tensor:
        if x.dim() and len(x) == self.samples:
            return x
        if rule.folds and x.dim() and len(x) % self.samples == 0:
            return x.reshape(self.samples, -1, *x.shape[1:])
        raise Unsupported(f"a layer sees {tuple(x.shape)}, in which {self.samples} samples are not along dim 0")

    def _add(self, p: Tensor, gradients: Tensor) -> None:
        gradients = at_least_single(gradients)
        if gradients[0].numel() < LARGE:
            summed = _summed(gradients, self.size)
            self.sums[p] = self.sums[p].add_(summed) if p in self.sums else summed
            return
        if p not in self.sums:
            self.sums[p] = torch.zeros_like(gradients[0])  # keeps the layout in which the rule works
        for gradient in gradients:
            self.size.add_(self.sums[p], gradient)

    def _add_pending(self, p: Tensor, gradients: Tensor) -> None:
        self.floats += gradients.numel()
        self.pending[p] = self.pending[p] + gradients if p in self.pending else gradients

    def _watch_generic(self, unit: Unit, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        leaves, form = pytree.tree_flatten(output)
        grads: list[Tensor | None] = [None] * len(leaves)
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                leaves[i] = self._rooted(leaf)
                leaves[i].register_hook(partial(grads.__setitem__, i))
                grads[i] = torch.zeros_like(leaf)
                self.floats += 4 * leaf.numel()
        self.floats += self.samples * sum(p.numel() for p in unit.module.parameters() if p in self.trainable)
        self.generic.append((unit, args, kwargs, grads))
        return pytree.tree_unflatten(leaves, form)

    def finish(self) -> dict[Tensor, Tensor]:
        for unit, args, kwargs, grads in self.generic:
            found: Iterator[tuple[Tensor, Tensor]]
            attention = as_self_attention(unit.module, args, kwargs)
            if attention is not None and grads[0] is not None and len(args[0]) == self.samples:
                found = attention_gradients(attention, self.trainable, args[0], grads[0])
            else:
                found = module_gradients(unit.module, self.trainable, args, kwargs, grads, self.samples)
            for p, gradients in found:
                if self.uses[p] > 1:
                    self._add_pending(p, gradients)
                else:
                    self._add(p, gradients)
        for p, gradients in self.pending.items():
            self._add(p, gradients)
        return self.sums

    def forget(self) -> None:
        """Let go of the activations: their graph holds hooks that hold this trace, a circle around them all."""
        self.roots.clear()
        self.generic.clear()
        self.pending.clear()


def _summed(gradients: Tensor, size: Size) -> Tensor:
    """Over dim 0, in the order of storage: across it, the rules' permuted results sum 30x slower."""
    strides = gradients.stride()
    order = sorted(range(1, gradients.dim()), key=lambda d: -strides[d])
    summed = size.of(gradients.permute(0, *order)).sum(0)
    return summed.permute([order.index(d) for d in range(1, gradients.dim())])
