"""Per-sample gradients of plain self-attention (torch.nn.MultiheadAttention), from the products it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.curvature.rules import linear_bias, linear_weight


def as_self_attention(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> nn.MultiheadAttention | None:
    """The module, if it was called as ``attention(x, x, x)``: samples first, no mask, one matrix for q, k and v."""
    plain = (
        type(module) is nn.MultiheadAttention
        and module.batch_first
        and module._qkv_same_embed_dim
        and module.bias_k is None
        and not module.add_zero_attn
        and len(args) == 3
        and args[0] is args[1] is args[2]
        and args[0].dim() == 3
        and all(kwargs.get(mask) is None for mask in ("key_padding_mask", "attn_mask"))
        and not kwargs.get("is_causal")
    )
    return module if plain and isinstance(module, nn.MultiheadAttention) else None


def attention_gradients(
    module: nn.MultiheadAttention, trainable: set[Tensor], x: Tensor, g: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Each trainable parameter with its per-sample gradients, for input x and output gradient g, both [n, T, E]."""
    assert module.in_proj_weight is not None
    x = x.detach()
    packed = F.linear(x, module.in_proj_weight.detach(), module.in_proj_bias).detach().requires_grad_()
    with torch.enable_grad():
        query, key, value = packed.unflatten(-1, (3, module.num_heads, module.head_dim)).permute(2, 0, 3, 1, 4)
        context = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
    (back,) = torch.autograd.grad(context, packed, g @ module.out_proj.weight.detach())
    for weight, bias, a, out in (
        (module.in_proj_weight, module.in_proj_bias, x, back),
        (module.out_proj.weight, module.out_proj.bias, context.detach(), g),
    ):
        if weight in trainable:
            yield weight, linear_weight(module.out_proj, a, out)
        if bias is not None and bias in trainable:
            yield bias, linear_bias(module.out_proj, a, out)
