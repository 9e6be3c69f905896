"""Per-sample gradients of norms in eval mode: affine maps of the normalised input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.curvature.lazy_gradients import Made, Piece

PieceOf = Callable[[Any, Tensor, Tensor], Piece]


def batch_normalised(module: Any, a: Tensor) -> Tensor:
    return F.batch_norm(a, module.running_mean, module.running_var, eps=module.eps)


def group_normalised(module: nn.GroupNorm, a: Tensor) -> Tensor:
    return F.group_norm(a, module.num_groups, eps=module.eps)


def instance_normalised(module: Any, a: Tensor) -> Tensor:
    if module.track_running_stats:
        return batch_normalised(module, a)
    return F.instance_norm(a, eps=module.eps)


def layer_normalised(module: nn.LayerNorm, a: Tensor) -> Tensor:
    return F.layer_norm(a, module.normalized_shape, eps=module.eps)


def rms_normalised(module: nn.RMSNorm, a: Tensor) -> Tensor:
    return F.rms_norm(a, module.normalized_shape, eps=module.eps)


def hugging_rms_normalised(module: Any, a: Tensor) -> Tensor:
    """As the RMSNorm classes of Hugging Face's transformers; they differ in names and in a 1 added to the weight."""
    eps = module.variance_epsilon if hasattr(module, "variance_epsilon") else module.eps
    wide = a.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(a.dtype)


def is_hugging_rms(module: nn.Module) -> bool:
    """Recognised without the library; a class that only looks like one does not pass the check against autograd."""
    kind = type(module)
    named = kind.__name__.endswith("RMSNorm") or kind.__name__ == "T5LayerNorm"
    return named and kind.__module__.startswith("transformers.") and set(module._parameters) == {"weight"}


def channel_sum(product: Tensor, module: Any) -> Tensor:
    return product.flatten(2).sum(2) if product.dim() > 2 else product


def layer_sum(product: Tensor, module: Any) -> Tensor:
    inner = product.dim() - module.weight.dim()
    return product.flatten(1, inner - 1).sum(1) if inner > 1 else product


def scale(normalised: Callable[[Any, Tensor], Tensor], summed: Callable[[Tensor, Any], Tensor]) -> PieceOf:
    def weight(module: Any, a: Tensor, g: Tensor) -> Piece:
        return Made(lambda n: summed(normalised(module, a[n]).mul_(g[n]), module), a[0].numel())

    return weight


def shift(summed: Callable[[Tensor, Any], Tensor]) -> PieceOf:
    def bias(module: Any, a: Tensor, g: Tensor) -> Piece:
        return Made(lambda n: summed(g[n], module), g[0].numel())

    return bias
