"""MoFO, the momentum-filtered optimizer (Chen et al. 2025, TMLR, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from tmln.distributed.process_group import gather_full, is_sharded
from tmln.optim.checks import begin_step, check_above, check_at_least, check_betas, check_gradient
from tmln.optim.state import check_replacement, keep_state_dtype, replace_parameter, state_dtype
from tmln.optim.update import adam_directions


def largest_mask(momentum: Tensor, fraction: float) -> Tensor:
    """Return where |m| is among the largest ``fraction`` of its tensor, at least one; ties count.

    >>> largest_mask(torch.tensor([[1.0, -4.0], [3.0, 0.0]]), 0.5)
    tensor([[False,  True],
            [ True, False]])
    """
    size = momentum.abs()
    count = max(1, int(size.numel() * fraction))
    last = gather_full(size).flatten().kthvalue(size.numel() - count + 1).values
    return size >= (float(last) if is_sharded(size) else last)


class MoFO(Optimizer):
    r"""AdamW that moves only the weights with the largest momentum; each tensor is a block.

    .. math::
        \theta \leftarrow (1-\eta\lambda)\,\theta - \eta\, \frac{\hat m}{\sqrt{\hat v}+\epsilon}
        \odot [\,|m| \text{ among the largest } \alpha\,]

    Every gradient goes into m and v. Tensors of fewer than two dimensions (biases, norms) move
    whole, as in the authors' code. Decoupled decay is of all weights; the authors' code leaves
    norms out of it: for that, pass their parameters in a group with ``weight_decay=0``.

    Args:
        params: parameters or parameter groups.
        lr: eta.
        betas: decay rates of m and v.
        eps: Adam's eps.
        weight_decay: lambda.
        fraction: alpha; the authors take 0.05 to 0.2, and 1 is AdamW.
        maximize: maximize instead of minimize.

    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = MoFO(model.parameters(), lr=0.001, fraction=0.25)
    >>> before = model.weight.detach().clone()
    >>> model(torch.randn(1, 4)).square().sum().backward()
    >>> optimizer.step()
    >>> int((model.weight != before).sum())
    2
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        fraction: float = 0.15,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "fraction": fraction,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group as ``torch.optim`` does; its settings are checked."""
        group = {**self.defaults, **param_group}
        for name in ("lr", "weight_decay"):
            check_at_least(name, float(group[name]), 0.0)
        check_above("eps", group["eps"], 0.0)
        check_betas(group["betas"])
        if not 0.0 < group["fraction"] <= 1.0:
            raise ValueError(f"fraction must lie in (0, 1], got {group['fraction']}")
        super().add_param_group(param_group)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update the means with every gradient, and move the weights with the largest momentum."""
        loss = begin_step(self, closure)
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None and p.numel()]
            if params:
                self._move(group, params)
        return loss

    def _move(self, group: dict[str, Any], params: list[Tensor]) -> None:
        lr, sign = float(group["lr"]), -1.0 if group["maximize"] else 1.0
        for p in params:
            check_gradient(p, "MoFO")
        gradients = [p.grad.to(state_dtype(p)) * sign for p in params if p.grad is not None]
        states = [self.state[p] for p in params]
        directions = adam_directions(params, gradients, states, group["betas"], group["eps"])
        for p, direction, state in zip(params, directions, states, strict=True):
            if group["fraction"] < 1.0 and p.dim() > 1:
                direction.mul_(largest_mask(state["exp_avg"], group["fraction"]))
            if group["weight_decay"]:
                direction.add_(p, alpha=group["weight_decay"])
            p.add_(direction, alpha=-lr)

    def replace(self, old: Tensor, new: Tensor) -> None:
        """Put ``new``, with more rows, in place of ``old``; means of new rows begin at zero."""
        check_replacement(old, new)
        replace_parameter(self, old, new)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; means of half-precision weights stay in float32."""
        super().load_state_dict(state_dict)
        keep_state_dtype(self, state_dict)
