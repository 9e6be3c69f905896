"""Elementwise work over lists of tensors: one fused call, or one tensor at a time with the same result."""

from __future__ import annotations

import torch
from torch import Tensor


def scaled(xs: list[Tensor], factor: float, foreach: bool) -> list[Tensor]:
    """New tensors factor*x."""
    return list(torch._foreach_mul(xs, factor)) if foreach else [x * factor for x in xs]


def add_(xs: list[Tensor], ys: list[Tensor], factor: float, foreach: bool) -> None:
    """x += factor*y."""
    if foreach:
        torch._foreach_add_(xs, ys, alpha=factor)
        return
    for x, y in zip(xs, ys, strict=True):
        x.add_(y, alpha=factor)


def add_product_(xs: list[Tensor], ys: list[Tensor], zs: list[Tensor], factor: float, foreach: bool) -> None:
    """x += factor*y*z."""
    if foreach:
        torch._foreach_addcmul_(xs, ys, zs, value=factor)
        return
    for x, y, z in zip(xs, ys, zs, strict=True):
        x.addcmul_(y, z, value=factor)
