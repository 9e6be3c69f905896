"""Quadratic penalties (c/2) * sum_i w_i*(theta_i - theta*_i)^2, without a backward pass."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.distributed.process_group import ShardValue, local_part, reduce_parts
from tmln.methods import Growth, MemoryConditions, MemoryTerm, Penalty, Settings, TaskContext, weight_sums
from tmln.optim.checks import check_gradient
from tmln.optim.state import state_dtype


def copy_weights(weights: list[Tensor]) -> list[Tensor]:
    """Return copies of the weights, in float32 of half precision."""
    return [p.detach().to(state_dtype(p), copy=True) for p in weights]


def make_zeros(weights: list[Tensor]) -> list[Tensor]:
    """Return zeros for every weight, in float32 for half precision."""
    return [torch.zeros_like(p, dtype=state_dtype(p)) for p in weights]


def pad_with_zeros(values: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    """Return the values, and zeros for the weights at the end that have none yet."""
    return [*values, *make_zeros(weights[len(values) :])]


def compute_penalty(weights: list[Tensor], anchor: list[Tensor], importance: list[Tensor], stiffness: float) -> Tensor:
    """Return (c/2) * sum w*(theta - theta*)^2; training needs only its gradient."""
    terms = [(w * (p - a).square()).sum() for p, a, w in zip(weights, anchor, importance, strict=True)]
    return 0.5 * stiffness * torch.stack(terms).sum()


def add_penalty_gradient(
    gradients: list[Tensor], weights: list[Tensor], anchor: list[Tensor], importance: list[Tensor], stiffness: float
) -> list[Tensor]:
    """Return g + c*w*(theta - theta*) as new tensors."""
    distance = torch._foreach_sub(weights, anchor)
    total = torch._foreach_addcmul(gradients, importance, distance, value=stiffness)
    return [t if t.dtype is g.dtype else t.to(g.dtype) for t, g in zip(total, gradients, strict=True)]


def proximal_step_(weights: list[Tensor], anchor: list[Tensor], importance: list[Tensor], scale: float) -> None:
    """Compute theta <- (theta + x*theta*) / (1 + x) with x = ``scale``*w, never past the anchor."""
    shares = torch._foreach_mul(importance, scale)
    torch._foreach_div_(shares, torch._foreach_add(shares, 1.0))
    values = [p if p.dtype is a.dtype else p.to(a.dtype) for p, a in zip(weights, anchor, strict=True)]
    torch._foreach_lerp_(values, anchor, shares)
    for p, value in zip(weights, values, strict=True):
        if value is not p:
            p.copy_(value)


def find_maximum(values: list[Tensor]) -> float:
    """Return the largest entry of all tensors, with one synchronisation of the device."""
    filled = [value for value in values if value.numel()]
    if not filled:
        return 0.0
    here = [
        local_part(value) if local_part(value).numel() else local_part(value).new_full((1,), -math.inf)
        for value in filled
    ]
    tops = torch.stack([m.to(here[0].device) for m in torch._foreach_max(here)]).tolist()
    return max(reduce_parts([ShardValue(value, top) for value, top in zip(filled, tops, strict=True)], "max"))


def divide_by_maximum(values: list[Tensor]) -> list[Tensor]:
    """Return v / max(v) over all tensors, so that one strength suits every network."""
    top = find_maximum(values)
    return list(torch._foreach_div(values, top)) if top > 0 else [value.clone() for value in values]


class QuadraticSettings(Settings):
    """Settings of lambda * sum w*(theta - theta*)^2."""

    strength: float = Field(
        default=1.0,
        ge=0.0,
        allow_inf_nan=False,
        description="lambda, the penalty's factor",
        json_schema_extra={"search": {"low": 0.01, "high": 100.0, "log": True}},
    )
    proximal: bool = Field(
        default=False,
        description="take the penalty's step exactly, after the task's step: stable at any strength",
        json_schema_extra={"search": [False, True]},
    )


Q = TypeVar("Q", bound=QuadraticSettings)


class Quadratic(Penalty[Q]):
    """A penalty with an importance w and an anchor theta* that are set at a task's end.

    c is :attr:`stiffness`: 2*lambda for lambda * sum w*d^2, lambda for the form with 1/2. Explicit
    steps of rate eta diverge unless eta*c*max(w) < 2; this is checked when a task begins.

    A parameter that is unfrozen later joins at the next gradient or boundary, at the end of every
    list, anchored at its current value and without importance until the next boundary.
    """

    state_names: ClassVar[tuple[str, ...]] = ("positions", "anchor", "importance", "rate", "warned")
    weight_copy_names: ClassVar[tuple[str, ...]] = ("anchor",)
    weight_sum_names: ClassVar[tuple[str, ...]] = ("anchor", "importance")  # those of one number per weight
    needs_boundary = True

    def __init__(self, settings: Q, model: nn.Module) -> None:
        super().__init__(settings, model)
        self.model = model
        self.weights = self.parameters
        self.outside: list[Tensor] = [p for p in model.parameters() if not p.requires_grad]
        self.anchor: list[Tensor] = []
        self.importance: list[Tensor] = []  # empty until a task has ended
        self.rate = 0.0
        self.warned = False

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return weight_sums(*cls.weight_sum_names)

    @property
    def stiffness(self) -> float:
        """The factor c in (c/2) * sum w*(theta - theta*)^2; 2*lambda unless overridden."""
        return 2.0 * self.settings.strength

    @property
    def pulls(self) -> bool:
        """Whether there is anything to add to the gradient."""
        return bool(self.importance) and self.settings.strength > 0 and not self.settings.proximal

    @property
    def positions(self) -> list[int]:
        """The indices of the weights among the model's parameters.

        Other parameters may be trainable when a state is loaded.
        """
        places: dict[Tensor, int] = {p: i for i, p in enumerate(self.model.parameters())}
        for p in self.weights:
            if p not in places:
                raise RuntimeError(
                    f"{self.name}: a parameter of shape {tuple(p.shape)} is no longer in the model; "
                    "make the penalty anew after replacing a layer"
                )
        return [places[p] for p in self.weights]

    @positions.setter
    def positions(self, positions: list[int]) -> None:
        everything: list[Tensor] = list(self.model.parameters())
        if positions and max(positions) >= len(everything):
            raise ValueError(
                f"{self.name}: the state is of parameter {max(positions)}, counted from 0, and the model has "
                f"{len(everything)}; load it for a model of the same architecture"
            )
        self.weights[:] = [everything[i] for i in positions]
        inside = set(positions)
        self.outside = [p for i, p in enumerate(everything) if i not in inside]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.positions = list(state["positions"])
        for name, found in state.items():
            values = found["recent"] if isinstance(found, Mapping) else found
            if name != "positions" and isinstance(values, (list, tuple)):
                self._check_shapes(name, list(values))
        super().load_state_dict(state)

    def _check_shapes(self, name: str, values: list[Tensor]) -> None:
        for position, p, value in zip(self.positions, self.weights, values, strict=False):
            if value.shape != p.shape:
                raise ValueError(
                    f"{self.name}: the {name} of parameter {position} has the shape {tuple(value.shape)}, the "
                    f"parameter {tuple(p.shape)}; load it for a model of the same architecture"
                )

    def grow(self, growth: Growth) -> None:
        growth.replace_parameters(self.outside)
        super().grow(growth)

    def begin(self, context: TaskContext) -> None:
        self.add_unfrozen()
        self.rate = context.effective_lr
        if self.pulls and not self.warned:
            self._warn_if_unstable()

    def set_effective_lr(self, rate: float) -> None:
        self.rate = rate

    def add_unfrozen(self) -> None:
        """Add parameters that were unfrozen since."""
        new = [p for p in self.outside if p.requires_grad]
        if new:
            self.outside = [p for p in self.outside if not p.requires_grad]
            self.weights += new
            self.extend(new)

    def extend(self, new: list[Tensor]) -> None:
        """Extend the lists by new weights."""
        if self.anchor:
            self.anchor = [*self.anchor, *copy_weights(new)]
        if self.importance:
            self.importance = [*self.importance, *make_zeros(new)]

    def read_gradients(self) -> list[Tensor]:
        """Return the gradients, zeros for parameters without one."""
        if self.outside:
            self.add_unfrozen()
        for p in self.parameters:
            check_gradient(p, self.name)
        return [torch.zeros_like(p) if (found := p.grad) is None else found for p in self.parameters]

    def add_gradient(self) -> None:
        if self.pulls:
            self.pull(self.read_gradients())

    @torch.no_grad()
    def pull(self, gradients: list[Tensor]) -> None:
        """Set ``.grad`` to g plus the penalty's gradient, as new tensors that leave g unchanged."""
        total = add_penalty_gradient(gradients, self.weights, self.anchor, self.importance, self.stiffness)
        for p, gradient in zip(self.parameters, total, strict=True):
            if p.requires_grad:  # may have been frozen since
                p.grad = gradient

    @torch.no_grad()
    def after_step(self) -> None:
        if self.importance and self.settings.strength > 0 and self.settings.proximal:
            weights, anchor, importance = self.weights, self.anchor, self.importance
            if not all(p.requires_grad for p in weights):  # some may have been frozen since
                moving = [i for i, p in enumerate(weights) if p.requires_grad]
                weights, anchor, importance = ([values[i] for i in moving] for values in (weights, anchor, importance))
            if weights:
                proximal_step_(weights, anchor, importance, self.rate * self.stiffness)

    def consolidate(self, importance: list[Tensor]) -> None:
        """Set the importance, and the anchor to the current weights."""
        top = find_maximum(importance)
        if not math.isfinite(top):
            raise FloatingPointError(
                f"{self.name}: the importance of the weights is not finite ({top}): training has diverged; "
                f"lower the learning rate ({self.rate:g}) or strength ({self.settings.strength:g})"
            )
        self.importance = importance
        self.anchor = copy_weights(self.weights)

    def _warn_if_unstable(self) -> None:
        strength, top = self.settings.strength, find_maximum(self.importance)
        product, limit = self.rate * strength * top, 2.0 * strength / self.stiffness
        if product >= limit:
            self.warned = True
            warnings.warn(
                f"{self.name}: rate {self.rate:g} x strength {strength:g} x largest importance {top:g} = {product:g}; "
                f"from {limit:g} on explicit steps overshoot the anchor and diverge. Lower strength (below "
                f"{limit / (self.rate * top):g}) or the learning rate, or set proximal=True",
                stacklevel=2,
            )
