"""Adam's direction (Kingma and Ba 2015, Algorithm 1) for a list of tensors: what others filter, shield and apply."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tmln.optim.checks import check_share
from tmln.optim.precision import state_dtype

MOMENTS = ("exp_avg", "exp_avg_sq", "step")  # as torch calls them


def check_betas(betas: Sequence[float]) -> None:
    """Two numbers in [0, 1)."""
    if len(betas) != 2:
        raise ValueError(f"betas must be two numbers, of the mean and of the mean of squares; got {betas!r}")
    for beta in betas:
        check_share("betas", beta)


def adam_directions(
    params: Sequence[Tensor],
    gradients: list[Tensor],
    states: Sequence[dict[str, Tensor]],
    betas: tuple[float, float],
    eps: float,
    capturable: bool = False,
    foreach: bool = True,
) -> list[Tensor]:
    """m-hat / (sqrt(v-hat) + eps), new tensors, after taking the gradients into m and v of the states.

    The count of steps is on the host, where torch has it, unless ``capturable``: a CUDA graph replays nothing there.
    """
    for p, state in zip(params, states, strict=True):
        if "step" not in state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=p.device if capturable else "cpu")
            for name in MOMENTS[:2]:
                state[name] = torch.zeros_like(p, dtype=state_dtype(p))
        state["step"] += 1
    means, squares = ([state[name] for state in states] for name in MOMENTS[:2])
    steps: list[float | Tensor] = [state["step"] for state in states]
    if not (capturable or torch.compiler.is_compiling()):  # a number is faster, but it would be compiled in
        steps = [float(step) for step in steps]
    if not foreach:
        every = zip(means, squares, gradients, steps, strict=True)
        return [_directions([m], [v], [g], [t], betas, eps)[0] for m, v, g, t in every]
    return _directions(means, squares, gradients, steps, betas, eps)


def _directions(
    means: list[Tensor],
    squares: list[Tensor],
    gradients: list[Tensor],
    steps: Sequence[float | Tensor],
    betas: tuple[float, float],
    eps: float,
) -> list[Tensor]:
    """m <- beta1*m + (1-beta1)*g, v <- beta2*v + (1-beta2)*g^2; each over 1 - beta^t, for it began at zero."""
    torch._foreach_lerp_(means, gradients, 1.0 - betas[0])
    torch._foreach_mul_(squares, betas[1])
    torch._foreach_addcmul_(squares, gradients, gradients, value=1.0 - betas[1])
    roots = list(torch._foreach_sqrt(squares))
    torch._foreach_div_(roots, [(1.0 - betas[1] ** t) ** 0.5 for t in steps])
    torch._foreach_add_(roots, eps)
    torch._foreach_mul_(roots, [1.0 - betas[0] ** t for t in steps])
    return list(torch._foreach_div(means, roots))
