"""UPGD, utility-based perturbed gradient descent (Elsayed and Mahmood 2024)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from tmln.distributed.process_group import Group, is_sharded, local_part, local_shard, ranks_of, reduce_over_mesh
from tmln.optim.checks import begin_step, check_above, check_at_least, check_choice, check_fraction, check_gradient
from tmln.optim.state import check_replacement, keep_state_dtype, replace_parameter, state_dtype

VARIANTS = ("global", "local")

# Below this, 1/M times the bias correction could overflow float32: an idle weight's 0 * inf is NaN.
NEGLIGIBLE_PEAK = 1e-30


def trace_utilities(
    utilities: list[Tensor],
    weights: list[Tensor],
    gradients: list[Tensor],
    beta: float,
    sign: float,
) -> None:
    """Update U <- beta*U + (1-beta)*(-g*theta) in place, with g = ``sign`` * gradient."""
    torch._foreach_mul_(utilities, beta)
    torch._foreach_addcmul_(utilities, gradients, weights, value=-(1.0 - beta) * sign)


def peak_utility(utilities: list[Tensor], corrections: list[float]) -> tuple[float, float]:
    """Return M, the largest utility of all tensors, as it is and corrected for bias.

    The only wait for the device in a step; -inf without any utilities.
    """
    filled = [(u, correction) for u, correction in zip(utilities, corrections, strict=True) if u.numel()]
    if not filled:
        return -math.inf, -math.inf
    maxima = torch._foreach_max([u for u, _ in filled])
    peaks = torch.stack([m.to(maxima[0].device) for m in maxima]).tolist()
    return max(peaks), max(peak / correction for peak, (_, correction) in zip(peaks, filled, strict=True))


def global_gates(
    utilities: list[Tensor], corrections: list[float], peak: float, guard_negative_max: bool
) -> list[Tensor]:
    """Return q = 1 - sigmoid(U / ((1-beta^t) M)), or 1/2 if M is zero (or, guarded, negative)."""
    if not NEGLIGIBLE_PEAK <= abs(peak) < math.inf or (guard_negative_max and peak < 0):
        return [torch.full_like(u, 0.5) for u in utilities]
    gates = torch._foreach_mul(utilities, [-1.0 / (correction * peak) for correction in corrections])
    torch._foreach_sigmoid_(gates)
    return list(gates)


def local_gates(utilities: list[Tensor], corrections: list[float]) -> list[Tensor]:
    """Return q = 1 - sigmoid(U-hat / |U-hat|), with L2 norms over the last dimension."""
    gates = torch._foreach_mul([local_part(u) for u in utilities], [-1.0 / correction for correction in corrections])
    for gate, utility in zip(gates, utilities, strict=True):
        norm = torch.linalg.vector_norm(gate, dim=-1, keepdim=gate.dim() > 0)
        if is_sharded(utility):
            tensor: Any = utility
            across = [placement.is_shard(tensor.dim() - 1) for placement in tensor.placements]
            norm = reduce_over_mesh(norm.square_(), tensor.device_mesh, across, "sum").sqrt() if any(across) else norm
        gate.div_(norm.clamp_min_(1e-12))
    torch._foreach_sigmoid_(gates)
    return list(gates)


class UPGD(Optimizer):
    r"""First-order, weight-wise UPGD; ``variant="global"`` with ``protecting=True`` is the paper's.

    .. math::
        U &\leftarrow \beta U + (1-\beta)(-g\,\theta), \qquad
        q = 1 - \mathrm{sigmoid}\!\left(\frac{U}{(1-\beta^t)\,M}\right), \qquad M = \max U \\
        \theta &\leftarrow (1-\eta\lambda)\,\theta - \eta\,c\,q\,(g+\xi), \;\; \xi\sim N(0,\sigma^2)

    Parameters without a gradient are skipped: they neither move, nor draw noise, nor count for M.
    Where ``torch.distributed`` is initialised M is the maximum over all ranks (of ``group``;
    ``"local"``: of this one), so that parameters in shards, or distributed by
    ``ZeroRedundancyOptimizer``, are gated as in one process.

    Args:
        params: parameters or parameter groups.
        lr: eta.
        beta_utility: beta.
        sigma: standard deviation of the noise.
        weight_decay: lambda, decoupled.
        factor: c. With 2 a weight of zero utility takes a plain SGD step, with 1 half of it.
        variant: ``"local"`` divides by the norm of utilities along each tensor's last dimension
            in place of M.
        protecting: ``False`` gates the noise only: theta <- ... - eta*(g + c*q*xi).
        correct_max: correct M for its bias as well. The authors do not, so that the most useful
            weights are nearly frozen in the first 1/(1-beta) steps.
        guard_negative_max: take q = 1/2 when every utility is negative: M < 0 would otherwise
            protect the most harmful weights. For M = 0 this is always done.
        maximize: maximize instead of minimize.
        seed: seed of an own generator of noise, whose state is in ``state_dict()``; ``None`` draws
            from torch's global one, which is the caller's to save.
        group: the processes that share M.

    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = UPGD(model.parameters(), lr=0.01)
    >>> model(torch.ones(1, 4)).sum().backward()
    >>> optimizer.step()
    """

    _group: Group = None  # in no state: it belongs to the process

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.01,
        beta_utility: float = 0.99,
        sigma: float = 0.1,
        weight_decay: float = 0.0,
        factor: float = 1.0,
        variant: str = "global",
        protecting: bool = True,
        *,
        correct_max: bool = False,
        guard_negative_max: bool = False,
        maximize: bool = False,
        seed: int | None = 0,
        group: Group = None,
    ) -> None:
        self._seed, self._group = seed, group
        self._generators: dict[str, torch.Generator] = {}
        defaults = {
            "lr": lr,
            "beta_utility": beta_utility,
            "sigma": sigma,
            "weight_decay": weight_decay,
            "factor": factor,
            "variant": variant,
            "protecting": protecting,
            "correct_max": correct_max,
            "guard_negative_max": guard_negative_max,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group as ``torch.optim`` does; its settings are checked."""
        _check({**self.defaults, **param_group})
        super().add_param_group(param_group)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every utility first, then move every weight: M is of the whole model."""
        loss = begin_step(self, closure)
        moves = [(group, weights) for group in self.param_groups if (weights := _with_gradient(group))]
        for group, weights in moves:
            self._trace(group, weights)
        compared = [(g, p) for g, weights in moves if g["variant"] == "global" for p in weights]
        peak, corrected_peak = ranks_of(self._group).reduce_max(
            peak_utility(
                [local_part(self.state[p]["utility"]) for _, p in compared],
                [self._correction(g, p) for g, p in compared],
            )
        )
        for group, weights in moves:
            self._move(group, weights, corrected_peak if group["correct_max"] else peak)
        return loss

    def replace(self, old: Tensor, new: Tensor) -> None:
        """Put ``new``, with more rows, in place of ``old``; utilities of new rows begin at zero."""
        check_replacement(old, new)
        replace_parameter(self, old, new)

    def _correction(self, group: dict[str, Any], p: Tensor) -> float:
        return float(1.0 - group["beta_utility"] ** self.state[p]["step"])

    def _trace(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        for p in weights:
            state = self.state[p]
            if not state:
                state["step"] = 0
                state["utility"] = torch.zeros_like(p, dtype=state_dtype(p), memory_format=torch.preserve_format)
            state["step"] += 1
        utilities = [local_part(self.state[p]["utility"]) for p in weights]
        sign = -1.0 if group["maximize"] else 1.0
        trace_utilities(utilities, [local_part(p) for p in weights], _gradients(weights), group["beta_utility"], sign)

    def _move(self, group: dict[str, Any], weights: list[Tensor], peak: float) -> None:
        lr, sigma, factor = float(group["lr"]), group["sigma"], group["factor"]
        sign = -1.0 if group["maximize"] else 1.0
        utilities = [self.state[p]["utility"] for p in weights]
        corrections = [self._correction(group, p) for p in weights]
        if group["variant"] == "local":
            gates = local_gates(utilities, corrections)
        else:
            gates = global_gates([local_part(u) for u in utilities], corrections, peak, group["guard_negative_max"])
        noise = [self._standard_normal(p) for p in weights]
        gradients = _gradients(weights)
        moved = [local_part(p).to(state_dtype(p)) for p in weights]  # half precision is rounded once, at the end
        if group["weight_decay"]:
            torch._foreach_mul_(moved, 1.0 - lr * group["weight_decay"])
        if group["protecting"]:
            torch._foreach_mul_(noise, sigma)
            torch._foreach_add_(noise, gradients, alpha=sign)
            torch._foreach_addcmul_(moved, noise, gates, value=-lr * factor)
        else:
            torch._foreach_add_(moved, gradients, alpha=-lr * sign)
            torch._foreach_addcmul_(moved, noise, gates, value=-lr * factor * sigma)
        for p, value in zip(weights, moved, strict=True):
            if value is not local_part(p):
                local_part(p).copy_(value)

    def _standard_normal(self, p: Tensor) -> Tensor:
        """Draw noise in logical order, whatever the memory format, and lay it out like ``p``.

        This is also 6x faster than ``normal_`` on a channels_last tensor.
        """
        generator = None
        if self._seed is not None:
            device = str(p.device)
            if device not in self._generators:
                self._generators[device] = torch.Generator(p.device).manual_seed(self._seed)
            generator = self._generators[device]
        noise = torch.randn(p.shape, dtype=state_dtype(p), device=p.device, generator=generator)
        if is_sharded(p):
            return local_shard(noise, p)  # of the noise that a single process would draw
        return noise if p.is_contiguous() else torch.empty_like(p, dtype=noise.dtype).copy_(noise)

    def state_dict(self) -> dict[str, Any]:
        """Return the state with ``"noise"``: the seed and the generator's state on each device."""
        states = {device: generator.get_state() for device, generator in self._generators.items()}
        return {**super().state_dict(), "noise": {"seed": self._seed, "generators": states}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly where ``state_dict`` was taken."""
        if "noise" not in state_dict:
            raise ValueError(
                "the state has no entry 'noise', so it is not UPGD's; load what UPGD.state_dict() returned"
            )
        super().load_state_dict(state_dict)
        keep_state_dtype(self, state_dict)
        noise = state_dict["noise"]
        self._seed = noise["seed"]
        # Another device's generator is of no use here: there the noise starts again from the seed.
        here = {str(p.device) for group in self.param_groups for p in group["params"]}
        self._generators = {device: torch.Generator(device) for device in noise["generators"] if device in here}
        for device, generator in self._generators.items():
            generator.set_state(noise["generators"][device].cpu())

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_seed": self._seed, "_generators": self._generators}


def _with_gradient(group: dict[str, Any]) -> list[Tensor]:
    weights = [p for p in group["params"] if p.grad is not None]
    for p in weights:
        check_gradient(p, "UPGD")
    return weights


def _gradients(weights: list[Tensor]) -> list[Tensor]:
    return [local_part(p.grad) for p in weights if p.grad is not None]


def _check(group: dict[str, Any]) -> None:
    for name in ("lr", "sigma", "weight_decay"):
        check_at_least(name, group[name], 0.0)
    check_fraction("beta_utility", group["beta_utility"])
    check_above("factor", group["factor"], 0.0)
    check_choice("variant", group["variant"], VARIANTS)
