"""Per-sample gradients of single layers from their input a and output gradient g."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.curvature.conv_rules import conv_bias, conv_weight, fits_transposed, transposed_weight
from tmln.curvature.lazy_gradients import Computed, Lookup, Piece, Product

# -- attention -----------------------------------------------------------------------------------


# (weight, bias, rows of both, input) -> F.linear(input, weight[rows], bias[rows])
LinearMap = Callable[[Tensor, Tensor | None, slice, Tensor], Tensor]


def is_plain_attention(module: nn.Module) -> bool:
    """Return whether the module is torch's attention, without keys and values of its own."""
    return (
        type(module) is nn.MultiheadAttention
        and module.bias_k is None
        and not module.add_zero_attn
        and "forward" not in vars(module)
    )


def compute_attention(
    module: nn.MultiheadAttention,
    linear: LinearMap,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return what ``module.forward`` returns in eval mode, with products computed by ``linear``."""
    if query.dim() != 3:
        raise ValueError(f"attention over {tuple(query.shape)}: samples along a dim of their own are needed")
    if is_causal and attn_mask is None:
        raise ValueError("is_causal is a hint about attn_mask, which is missing")
    same = query is key is value
    if not module.batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    q, k, v = _project(module, linear, query, key, value, same)
    q, k, v = (x.unflatten(-1, (module.num_heads, module.head_dim)).transpose(1, 2) for x in (q, k, v))
    mask = _mask(module, attn_mask, key_padding_mask, q)
    weights: Tensor | None = None
    if need_weights:
        scores = (q / math.sqrt(module.head_dim)) @ k.transpose(-2, -1)
        weights = (scores if mask is None else scores + mask).softmax(-1)
        context = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        context = F.scaled_dot_product_attention(q, k, v, mask)
    context = context.transpose(1, 2).flatten(2)
    out = linear(module.out_proj.weight, module.out_proj.bias, slice(0, module.embed_dim), context)
    return (out if module.batch_first else out.transpose(0, 1)), weights


def _project(
    module: nn.MultiheadAttention, linear: LinearMap, query: Tensor, key: Tensor, value: Tensor, same: bool
) -> tuple[Tensor, ...]:
    width, bias = module.embed_dim, module.in_proj_bias
    packed: Tensor | None = module.in_proj_weight
    if packed is not None and same:
        return linear(packed, bias, slice(0, 3 * width), query).chunk(3, -1)
    thirds = [slice(i * width, (i + 1) * width) for i in range(3)]
    if packed is not None:
        return tuple(linear(packed, bias, rows, x) for rows, x in zip(thirds, (query, key, value), strict=True))
    own: Any = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    outputs = []
    for weight, rows, x in zip(own, thirds, (query, key, value), strict=True):
        out = linear(weight, None, slice(0, width), x)
        outputs.append(out if bias is None else linear(_ZERO, bias, rows, out))
    return tuple(outputs)


_ZERO = torch.zeros(0)  # no weight: linear() then only adds the bias


def _mask(module: nn.MultiheadAttention, attn_mask: Tensor | None, padding: Tensor | None, q: Tensor) -> Tensor | None:
    """Return both masks as one that is added to the scores [n, heads, queries, keys]."""
    total: Tensor | None = None
    if attn_mask is not None:
        total = _to_additive(attn_mask, q)
        total = total.unflatten(0, (-1, module.num_heads)) if total.dim() == 3 else total
    if padding is not None:
        closed = _to_additive(padding, q)[:, None, None, :]
        total = closed if total is None else total + closed
    return total


def _to_additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype is not torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, -math.inf)


# -- norms in eval mode: affine maps of the normalised input -------------------------------------


PieceOf = Callable[[Any, Tensor, Tensor], Piece]


def batch_normalised(module: Any, a: Tensor) -> Tensor:
    """Return the input normalised by running statistics."""
    return F.batch_norm(a, module.running_mean, module.running_var, eps=module.eps)


def group_normalised(module: nn.GroupNorm, a: Tensor) -> Tensor:
    """Return the input normalised by group."""
    return F.group_norm(a, module.num_groups, eps=module.eps)


def instance_normalised(module: Any, a: Tensor) -> Tensor:
    """Return the input normalised by instance, or by running statistics if it tracks them."""
    if module.track_running_stats:
        return batch_normalised(module, a)
    return F.instance_norm(a, eps=module.eps)


def layer_normalised(module: nn.LayerNorm, a: Tensor) -> Tensor:
    """Return the input normalised by layer."""
    return F.layer_norm(a, module.normalized_shape, eps=module.eps)


def rms_normalised(module: nn.RMSNorm, a: Tensor) -> Tensor:
    """Return the input divided by its root mean square."""
    return F.rms_norm(a, module.normalized_shape, eps=module.eps)


def hugging_rms_normalised(module: Any, a: Tensor) -> Tensor:
    """Return the input normalised as in the RMSNorm classes of Hugging Face's transformers.

    They differ in names, and in a 1 added to the weight.
    """
    eps = module.variance_epsilon if hasattr(module, "variance_epsilon") else module.eps
    wide = a.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(a.dtype)


def _own_names(module: nn.Module) -> set[str]:
    return {name for name, _ in module.named_parameters(recurse=False)}


def is_hugging_rms(module: nn.Module) -> bool:
    """Return whether this is such a class, by its name; the check against autograd judges."""
    kind = type(module)
    named = kind.__name__.endswith("RMSNorm") or kind.__name__ == "T5LayerNorm"
    return named and kind.__module__.startswith("transformers.") and _own_names(module) == {"weight"}


def channel_sum(product: Tensor, module: Any) -> Tensor:
    """Sum over all dimensions but samples and channels."""
    return product.flatten(2).sum(2) if product.dim() > 2 else product


def layer_sum(product: Tensor, module: Any) -> Tensor:
    """Sum over positions, leaving the shape of the weight."""
    inner = product.dim() - module.weight.dim()
    return product.flatten(1, inner - 1).sum(1) if inner > 1 else product


def scale(normalised: Callable[[Any, Tensor], Tensor], summed: Callable[[Tensor, Any], Tensor]) -> PieceOf:
    """Return the rule of a norm's weight."""

    def weight(module: Any, a: Tensor, g: Tensor) -> Piece:
        return Computed(lambda n: summed(normalised(module, a[n]).mul_(g[n]), module), a[0].numel())

    return weight


def shift(summed: Callable[[Tensor, Any], Tensor]) -> PieceOf:
    """Return the rule of a norm's bias."""

    def bias(module: Any, a: Tensor, g: Tensor) -> Piece:
        return Computed(lambda n: summed(g[n], module), g[0].numel())

    return bias


# -- the rules -----------------------------------------------------------------------------------


UserRule = Callable[[Any, Tensor, Tensor], Mapping[str, Tensor]]


def _fits_all(module: Any) -> bool:
    return True


@dataclass(frozen=True)
class Rule:
    """A piece of gradient for each parameter of one kind of layer, by name.

    ``fits`` says for which layers of the kind. ``folds``: samples may be folded with positions in
    dim 0.
    """

    parts: Mapping[str, PieceOf]
    fits: Callable[[Any], bool] = _fits_all
    folds: bool = False

    def knows(self, module: nn.Module) -> bool:
        return _own_names(module) <= set(self.parts) and self.fits(module)

    def pieces(self, module: nn.Module, wanted: list[str], a: Tensor, g: Tensor) -> Iterator[tuple[str, Piece]]:
        return ((name, self.parts[name](module, a, g)) for name in wanted)


@dataclass(frozen=True)
class Registered(Rule):
    """A rule of the user's: one function for all parameters of the layer."""

    function: UserRule | None = None

    def knows(self, module: nn.Module) -> bool:
        return True

    def pieces(self, module: nn.Module, wanted: list[str], a: Tensor, g: Tensor) -> Iterator[tuple[str, Piece]]:
        assert self.function is not None
        found = self.function(module, a, g)
        for name in wanted:
            shape = (len(a), *getattr(module, name).shape)
            if name not in found or tuple(found[name].shape) != shape:
                given = tuple(found[name].shape) if name in found else "nothing"
                raise RuleError(
                    f"the rule registered for {type(module).__name__} gave {given} for '{name}'; "
                    f"it must give per-sample gradients of shape {shape}"
                )
            yield name, Computed(found[name].__getitem__, found[name][0].numel())


class RuleError(ValueError):
    """A registered rule returned wrong names or shapes."""


# -- Linear: dW_n = sum_t g_nt a_nt^T ----------------------------------------------------------


def flatten_positions(x: Tensor) -> Tensor:
    """Return [n, T, width]; T = 1 without positions."""
    return x[:, None] if x.dim() == 2 else x.flatten(1, -2)


def linear_weight(module: Any, a: Tensor, g: Tensor) -> Piece:
    """Return per-sample gradients of a linear layer's weight, dW_n = sum_t g_nt a_nt^T."""
    return Product(flatten_positions(g), flatten_positions(a))


def linear_bias(module: Any, a: Tensor, g: Tensor) -> Piece:
    """Return per-sample gradients of a linear layer's bias."""
    return Computed(lambda n: g[n].flatten(1, -2).sum(1) if g.dim() > 2 else g[n], g[0].numel())


def transposed_linear_weight(module: Any, a: Tensor, g: Tensor) -> Piece:
    """Return per-sample gradients of a weight [inputs, outputs]."""
    return Product(flatten_positions(a), flatten_positions(g))


def embedding_weight(module: nn.Embedding, a: Tensor, g: Tensor) -> Piece:
    """Return per-sample gradients of an embedding."""
    return Lookup.of(a, g, module.padding_idx)


def is_hugging_linear(module: nn.Module) -> bool:
    """Return whether this is GPT-2's ``Conv1D``, a linear layer with a weight [inputs, outputs]."""
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


_LINEAR = Rule({"weight": linear_weight, "bias": linear_bias}, folds=True)
_CONV = Rule({"weight": conv_weight, "bias": conv_bias})
_TRANSPOSED = Rule({"weight": transposed_weight, "bias": conv_bias}, fits_transposed)
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
    """Register a rule for a layer of your own, which would otherwise be differentiated by ``vmap``.

    >>> class Scale(nn.Module):
    ...     def __init__(self, width):
    ...         super().__init__()
    ...         self.factor = nn.Parameter(torch.ones(width))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> register_rule(Scale, lambda module, a, g: {"factor": a * g})

    Like every rule it is checked against plain autograd in each call: a wrong one costs speed,
    never exactness.

    Args:
        module_class: the class of the layer; the rule is not for classes derived from it.
        rule: a function ``rule(module, a, g)`` of the layer, its one input ``a`` and the gradient
            ``g`` of its output, both with samples along dim 0. It returns per-sample gradients
            ``{name: [samples, *parameter.shape]}`` of the layer's own parameters.
        folds: whether inputs may have samples folded with positions in dim 0; the rule gets them
            unfolded.
    """
    if not (isinstance(module_class, type) and issubclass(module_class, nn.Module)):
        raise TypeError(f"register_rule needs a class of modules, got {module_class!r}")
    if not callable(rule):
        raise TypeError(f"the rule for {module_class.__name__} must be a function (module, a, g), got {rule!r}")
    RULES[module_class] = Registered({}, folds=folds, function=rule)


def rule_for(module: nn.Module) -> Rule | None:
    """Return the rule of exactly this class, unless a parametrization or own forward changed it."""
    rule = RULES.get(type(module)) or next((rule for fits, rule in RECOGNISED if fits(module)), None)
    return rule if rule is not None and "forward" not in vars(module) and rule.knows(module) else None
