"""Per-sample gradients of single layers, from what went in (a) and the gradient of what came out (g)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tmln.curvature.conv_rules import conv_bias, conv_weight, transposed_fits, transposed_weight
from tmln.curvature.lazy_gradients import Lookup, Made, Piece, Product
from tmln.curvature.norm_rules import (
    PieceOf,
    batch_normalised,
    channel_sum,
    group_normalised,
    hugging_rms_normalised,
    instance_normalised,
    is_hugging_rms,
    layer_normalised,
    layer_sum,
    rms_normalised,
    scale,
    shift,
)

UserRule = Callable[[Any, Tensor, Tensor], Mapping[str, Tensor]]


def _always(module: Any) -> bool:
    return True


@dataclass(frozen=True)
class Rule:
    """How one kind of layer is differentiated, sample by sample: a piece for each of its parameters, by name.

    ``fits`` says for which layers of the kind. ``folds``: samples may be folded with positions into dim 0.
    """

    parts: Mapping[str, PieceOf]
    fits: Callable[[Any], bool] = _always
    folds: bool = False

    def knows(self, module: nn.Module) -> bool:
        return set(module._parameters) <= set(self.parts) and self.fits(module)

    def pieces(self, module: nn.Module, wanted: list[str], a: Tensor, g: Tensor) -> Iterator[tuple[str, Piece]]:
        return ((name, self.parts[name](module, a, g)) for name in wanted)


@dataclass(frozen=True)
class Registered(Rule):
    """A rule of the user's own: one function for all parameters of the layer."""

    function: UserRule | None = None

    def knows(self, module: nn.Module) -> bool:
        return True

    def pieces(self, module: nn.Module, wanted: list[str], a: Tensor, g: Tensor) -> Iterator[tuple[str, Piece]]:
        assert self.function is not None
        found = self.function(module, a, g)
        for name in wanted:
            shape = (len(a), *module._parameters[name].shape)  # type: ignore[union-attr]  # wanted ones exist
            if name not in found or tuple(found[name].shape) != shape:
                given = tuple(found[name].shape) if name in found else "nothing"
                raise RuleError(
                    f"the rule registered for {type(module).__name__} gave {given} for '{name}'; "
                    f"it must give per-sample gradients of shape {shape}"
                )
            yield name, Made(found[name].__getitem__, found[name][0].numel())


class RuleError(ValueError):
    """A registered rule that does not answer as it has to."""


# -- Linear: dW_n = sum_t g_nt a_nt^T -------------------------------------------------------------------------------


def positions(x: Tensor) -> Tensor:
    """[n, T, width], T = 1 where there is none."""
    return x[:, None] if x.dim() == 2 else x.flatten(1, -2)


def linear_weight(module: Any, a: Tensor, g: Tensor) -> Piece:
    return Product(positions(g), positions(a))


def linear_bias(module: Any, a: Tensor, g: Tensor) -> Piece:
    return Made(lambda n: g[n].flatten(1, -2).sum(1) if g.dim() > 2 else g[n], g[0].numel())


def transposed_linear_weight(module: Any, a: Tensor, g: Tensor) -> Piece:
    return Product(positions(a), positions(g))


def embedding_weight(module: nn.Embedding, a: Tensor, g: Tensor) -> Piece:
    return Lookup.of(a, g, module.padding_idx)


def is_hugging_linear(module: nn.Module) -> bool:
    """The ``Conv1D`` of GPT-2, a linear layer whose weight is [inputs, outputs]."""
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


_LINEAR = Rule({"weight": linear_weight, "bias": linear_bias}, folds=True)
_CONV = Rule({"weight": conv_weight, "bias": conv_bias})
_TRANSPOSED = Rule({"weight": transposed_weight, "bias": conv_bias}, transposed_fits)
_BATCH = Rule(
    {"weight": scale(batch_normalised, channel_sum), "bias": shift(channel_sum)}, lambda m: m.running_mean is not None
)
_GROUP = Rule({"weight": scale(group_normalised, channel_sum), "bias": shift(channel_sum)})
_INSTANCE = Rule({"weight": scale(instance_normalised, channel_sum), "bias": shift(channel_sum)})
_LAYER = Rule({"weight": scale(layer_normalised, layer_sum), "bias": shift(layer_sum)}, folds=True)
_RMS = Rule({"weight": scale(rms_normalised, layer_sum)}, folds=True)
_HUGGING_RMS = Rule({"weight": scale(hugging_rms_normalised, layer_sum)}, folds=True)
_HUGGING_LINEAR = Rule({"weight": transposed_linear_weight, "bias": linear_bias}, folds=True)
_EMBEDDING = Rule({"weight": embedding_weight}, lambda m: m.max_norm is None and not m.scale_grad_by_freq, folds=True)

RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _LINEAR,
    nn.Conv1d: _CONV,
    nn.Conv2d: _CONV,
    nn.Conv3d: _CONV,
    nn.ConvTranspose1d: _TRANSPOSED,
    nn.ConvTranspose2d: _TRANSPOSED,
    nn.ConvTranspose3d: _TRANSPOSED,
    nn.BatchNorm1d: _BATCH,
    nn.BatchNorm2d: _BATCH,
    nn.BatchNorm3d: _BATCH,
    nn.SyncBatchNorm: _BATCH,
    nn.GroupNorm: _GROUP,
    nn.InstanceNorm1d: _INSTANCE,
    nn.InstanceNorm2d: _INSTANCE,
    nn.InstanceNorm3d: _INSTANCE,
    nn.LayerNorm: _LAYER,
    nn.RMSNorm: _RMS,
    nn.Embedding: _EMBEDDING,
}
# Kinds of Hugging Face's transformers, by their names: the library itself is never imported.
RECOGNISED: list[tuple[Callable[[nn.Module], bool], Rule]] = [
    (is_hugging_rms, _HUGGING_RMS),
    (is_hugging_linear, _HUGGING_LINEAR),
]


def register_rule(module_class: type[nn.Module], rule: UserRule, *, folds: bool = False) -> None:
    """Teach the diagonal Fisher a layer of your own, which would otherwise be differentiated by ``vmap``.

    ``rule(module, a, g)`` is given the layer, its one input ``a`` and the gradient ``g`` of its output, both with the
    samples along dim 0, and returns per-sample gradients ``{name: [samples, *parameter.shape]}`` of its own parameters.

    >>> class Scale(nn.Module):
    ...     def __init__(self, width):
    ...         super().__init__()
    ...         self.factor = nn.Parameter(torch.ones(width))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> register_rule(Scale, lambda module, a, g: {"factor": a * g})

    The rule is for just this class, not for those derived from it. With ``folds`` it may also be given inputs whose
    samples are folded with positions into dim 0, unfolded again. Like every rule it is checked against plain autograd
    in each call: a wrong one costs speed, never exactness.
    """
    if not (isinstance(module_class, type) and issubclass(module_class, nn.Module)):
        raise TypeError(f"register_rule needs a class of modules, got {module_class!r}")
    if not callable(rule):
        raise TypeError(f"the rule for {module_class.__name__} must be a function (module, a, g), got {rule!r}")
    RULES[module_class] = Registered({}, folds=folds, function=rule)


def rule_for(module: nn.Module) -> Rule | None:
    """The rule for just this class, unless something (a parametrisation, a replaced forward) has changed it."""
    rule = RULES.get(type(module)) or next((rule for fits, rule in RECOGNISED if fits(module)), None)
    return rule if rule is not None and "forward" not in vars(module) and rule.knows(module) else None
