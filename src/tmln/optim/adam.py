"""Adam's direction (Kingma and Ba 2015, Algorithm 1) for a list of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tmln.optim.precision import state_dtype

MOMENTS = ("exp_avg", "exp_avg_sq", "step")  # named as in torch


def adam_directions(
    params: Sequence[Tensor],
    gradients: list[Tensor],
    states: Sequence[dict[str, Tensor]],
    betas: tuple[float, float],
    eps: float,
    capturable: bool = False,
) -> list[Tensor]:
    r"""Update the moments in ``states`` and return Adam's directions.

    .. math::
        m \leftarrow \beta_1 m + (1-\beta_1) g, \quad
        v \leftarrow \beta_2 v + (1-\beta_2) g^2, \quad
        \frac{m / (1-\beta_1^t)}{\sqrt{v / (1-\beta_2^t)} + \epsilon}

    The count t is on the host, as in torch, unless ``capturable``: CUDA graphs do not replay what
    the host computes.
    """
    for p, state in zip(params, states, strict=True):
        if "step" not in state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=p.device if capturable else "cpu")
            for name in MOMENTS[:2]:
                state[name] = torch.zeros_like(p, dtype=state_dtype(p))
        state["step"] += 1
    means, squares = ([state[name] for state in states] for name in MOMENTS[:2])
    steps: list[float | Tensor] = [state["step"] for state in states]
    if not (capturable or torch.compiler.is_compiling()):  # a number is faster, but would be compiled in
        steps = [float(step) for step in steps]
    torch._foreach_lerp_(means, gradients, 1.0 - betas[0])
    torch._foreach_mul_(squares, betas[1])
    torch._foreach_addcmul_(squares, gradients, gradients, value=1.0 - betas[1])
    roots = list(torch._foreach_sqrt(squares))
    torch._foreach_div_(roots, [(1.0 - betas[1] ** t) ** 0.5 for t in steps])
    torch._foreach_add_(roots, eps)
    torch._foreach_mul_(roots, [1.0 - betas[0] ** t for t in steps])
    return list(torch._foreach_div(means, roots))
