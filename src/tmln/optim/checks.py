"""What every optimizer here refuses, in the same words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor


def check_at_least(name: str, value: float, low: float) -> None:
    """``check_at_least("lr", -1.0, 0.0)`` raises: lr must be a finite number >= 0, got -1.0."""
    if not (math.isfinite(value) and value >= low):
        raise ValueError(f"{name} must be a finite number >= {low:g}, got {value}")


def check_above(name: str, value: float, low: float) -> None:
    """``check_above("damping", 0.0, 0.0)`` raises: damping must be a finite number > 0, got 0.0."""
    if not (math.isfinite(value) and value > low):
        raise ValueError(f"{name} must be a finite number > {low:g}, got {value}")


def check_share(name: str, value: float, whole: bool = False) -> None:
    """``check_share("betas", 1.0)`` raises: betas must lie in [0, 1), got 1.0; ``whole``: 1 is allowed, too."""
    if not (0.0 <= value < 1.0 or (whole and value == 1.0)):
        raise ValueError(f"{name} must lie in [0, 1{']' if whole else ')'}, got {value}")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """``check_choice("form", "scald", ("scaled", "proximal"))`` raises, and lists what there is."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def check_gradient(p: Tensor, who: str) -> None:
    """Sparse and complex gradients have no elementwise metric here."""
    gradient = p.grad
    if gradient is not None and (gradient.is_sparse or gradient.layout != p.layout):
        raise TypeError(
            f"{who} needs dense gradients, got {gradient.layout} for a parameter of shape {tuple(p.shape)}; "
            "use sparse=False in the embedding, or give this parameter to torch.optim.SparseAdam"
        )
    if p.is_complex():
        raise TypeError(
            f"{who} needs real parameters, got {p.dtype} of shape {tuple(p.shape)}; "
            "hold the real and imaginary parts as two parameters"
        )


def check_finite(gradients: Mapping[Tensor, Tensor], names: Mapping[Tensor, str]) -> None:
    """Before anything moves: a gradient with NaN or infinity would spoil the weights for good."""
    for p, gradient in gradients.items():
        if not gradient.isfinite().all():
            raise FloatingPointError(
                f"the gradient of {names[p]} is not finite; nothing was stepped. "
                "Lower lr, raise damping, or look at the batch"
            )
