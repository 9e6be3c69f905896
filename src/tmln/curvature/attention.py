"""torch.nn.MultiheadAttention taken apart, so that each of its products can be seen: masks, other keys, any layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# (weight, bias, rows of both, input) -> F.linear(input, weight[rows], bias[rows]), whose gradient somebody waits for
Linear = Callable[[Tensor, Tensor | None, slice, Tensor], Tensor]


def is_plain(module: nn.Module) -> bool:
    """Attention as torch has it, without keys and values of its own making."""
    return (
        type(module) is nn.MultiheadAttention
        and module.bias_k is None
        and not module.add_zero_attn
        and "forward" not in vars(module)
    )


def attend(
    module: nn.MultiheadAttention,
    linear: Linear,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What ``module.forward`` answers in eval mode, its products made by ``linear``."""
    if query.dim() != 3:
        raise ValueError(f"attention over {tuple(query.shape)}: samples along a dim of their own are needed")
    if is_causal and attn_mask is None:
        raise ValueError("is_causal is a hint about attn_mask, which is missing")
    same = query is key is value
    if not module.batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    q, k, v = _projected(module, linear, query, key, value, same)
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


def _projected(
    module: nn.MultiheadAttention, linear: Linear, query: Tensor, key: Tensor, value: Tensor, same: bool
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
    """Both masks as one that is added to the scores [n, heads, queries, keys]."""
    total: Tensor | None = None
    if attn_mask is not None:
        total = _added(attn_mask, q)
        total = total.unflatten(0, (-1, module.num_heads)) if total.dim() == 3 else total
    if padding is not None:
        closed = _added(padding, q)[:, None, None, :]
        total = closed if total is None else total + closed
    return total


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype is not torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, -math.inf)
