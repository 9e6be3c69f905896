"""FOPNG, Fisher-orthogonal projected natural gradient (Garg et al. 2026, arXiv 2601.12816).

All Fishers are diagonals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, ParamsT

from tmln.curvature.preserve_state import preserve_model
from tmln.optim.boundary import match_fisher
from tmln.optim.checks import begin_step, check_above, check_at_least, check_choice, check_gradient
from tmln.optim.state import check_replacement, keep_state_dtype, replace_parameter, state_dtype
from tmln.optim.update import MOMENTS, adam_directions, copy_layout

PROJECTIONS = ("orthogonal", "public")
FIRST = ("adam", "sgd")


def output_gradients(
    model: nn.Module, inputs: Tensor, labels: Tensor, of: Literal["mean", "label"] = "mean"
) -> dict[Tensor, Tensor]:
    """Return each sample's gradient of its mean output, or of its label's, in eval mode.

    Args:
        model: the model.
        inputs: [samples, ...].
        labels: [samples].
        of: ``"mean"`` of the open (finite) outputs, or the output of the ``"label"``.

    Returns:
        ``{parameter: [samples, *shape]}``.
    """
    params = [p for p in model.parameters() if p.requires_grad]
    rows: list[list[Tensor]] = []
    with preserve_model(model, training=False), torch.enable_grad():
        for k in range(len(inputs)):
            output = model(inputs[k : k + 1]).flatten()
            is_open = output.isfinite()
            value = output[labels[k]] if of == "label" else output.where(is_open, 0.0).sum() / is_open.sum()
            found = torch.autograd.grad(value, params, allow_unused=True)
            rows.append([torch.zeros_like(p) if g is None else g for p, g in zip(params, found, strict=True)])
    return {p: torch.stack([row[i] for row in rows]) for i, p in enumerate(params)} if rows else {}


def gram(olds: Sequence[Tensor], news: Sequence[Tensor], stacks: Sequence[Tensor], damping: float) -> Tensor:
    """Return A = G'F_old (F_new + lambda)^-1 F_old G in float64 on the host; it is small."""
    found = torch.zeros(len(stacks[0]), len(stacks[0]), dtype=torch.float64)
    for old, new, stack in zip(olds, news, stacks, strict=True):
        rows = (stack * (old / (new + damping).sqrt())).flatten(1)
        found += (rows @ rows.T).cpu()
    return found


def invert_gram(matrix: Tensor, projection: str, damping: float, precision: float) -> Tensor:
    """Return the pseudo-inverse of A with rows scaled alike, or (A + lambda)^-1 if ``"public"``."""
    if projection == "public":
        damped = matrix.clone()
        damped.diagonal().add_(damping)
        plain: Tensor = torch.linalg.inv(damped)
        return plain
    length = matrix.diagonal().sqrt()
    scale = torch.where(length > 0, 1.0 / length, 0.0)  # F_old differs by orders of magnitude between tasks
    scaled = scale[:, None] * matrix * scale
    found: Tensor = torch.linalg.pinv(scaled, rtol=len(matrix) * precision, hermitian=True)
    return scale[:, None] * found * scale


def project(
    gradients: Sequence[Tensor],
    olds: Sequence[Tensor],
    news: Sequence[Tensor],
    stacks: Sequence[Tensor],
    solve: Tensor,
    damping: float,
    projection: str,
) -> list[Tensor]:
    """Return v = (F_new + lambda)^-1 (g - F_old G A^-1 G'F_old u) at v'(F_new + lambda)v = 1.

    u is (F_new + lambda)^-1 g, so that G'F_old v = 0; if ``projection`` is "public", g itself.
    """
    against = gradients[0].new_zeros(len(solve))
    for g, old, new, stack in zip(gradients, olds, news, stacks, strict=True):
        along = g if projection == "public" else g / (new + damping)
        against += stack.flatten(1) @ (old * along).flatten()
    weights = (solve @ against.cpu().double()).to(against)
    found, length = [], gradients[0].new_zeros(())
    for g, old, new, stack in zip(gradients, olds, news, stacks, strict=True):
        rest = g - old * torch.tensordot(weights, stack, dims=1)
        found.append(rest / (new + damping))
        length += (rest * found[-1]).sum()
    norm = float(length.sqrt())
    return [v / norm if norm > 0 else torch.zeros_like(v) for v in found]


class FOPNG(Optimizer):
    r"""The steepest step of length eta in the task's Fisher metric, orthogonal to old gradients.

    .. math::
        v = \arg\min_v g^\top v \quad\text{with}\quad
        v^\top F_{new}\, v = \eta^2, \quad G^\top F_{old}\, v = 0

    G are stored gradients of earlier tasks. The first task is Adam's. At a task's end store its
    directions, and at the beginning of the next its metric, which otherwise is the last task's:

    >>> model, x, y = nn.Linear(4, 2), torch.randn(8, 4), torch.randint(2, (8,))
    >>> optimizer = FOPNG(model.parameters(), lr=0.01)
    >>> nn.functional.cross_entropy(model(x), y).backward()
    >>> optimizer.step()
    >>> from tmln.curvature import diagonal_fisher
    >>> fisher = diagonal_fisher(model, [(x, y)])
    >>> optimizer.consolidate(fisher, output_gradients(model, x[:3], y[:3]))  # a task's end
    >>> optimizer.begin(fisher)  # of the next task's own data
    >>> optimizer.step()

    Args:
        params: parameters or parameter groups.
        lr: eta.
        damping: lambda, added to F_new.
        most: directions to keep, equally many of each task; of more tasks than that, the newest.
        projection: ``"public"`` follows the authors' public code, which puts g in place of the
            natural gradient (F_new + lambda)^-1 g and adds lambda to A; its steps are not
            orthogonal.
        first: the optimizer of the first task, ``"adam"`` or ``"sgd"``.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.01,
        damping: float = 1e-3,
        most: int = 200,
        *,
        projection: Literal["orthogonal", "public"] = "orthogonal",
        first: Literal["adam", "sgd"] = "adam",
    ) -> None:
        check_above("damping", damping, 0.0)
        check_at_least("most", most, 1)
        check_choice("projection", projection, PROJECTIONS)
        check_choice("first", first, FIRST)
        self.damping, self.most, self.projection, self.first = damping, most, projection, first
        self.counts: list[int] = []  # directions of each task
        self.solve: Tensor | None = None  # A^-1, computed again when F or G have changed
        super().__init__(params, {"lr": lr, "geometry": "fisher"})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group as ``torch.optim`` does."""
        check_at_least("lr", float(param_group.get("lr", self.defaults["lr"])), 0.0)
        super().add_param_group(param_group)

    @property
    def _all_parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def begin(self, fisher: Mapping[Any, Tensor] | Sequence[Tensor]) -> None:
        """Set F_new, the diagonal Fisher of the current task."""
        for p, value in match_fisher(self, fisher).items():
            state, new = self.state[p], copy_layout(value, p)
            state["fisher_new"] = new
            if self.counts and "directions" not in state:  # it did not train before: nothing of it is to be kept
                state["fisher_old"] = torch.zeros_like(new)
                state["directions"] = new.new_zeros(sum(self.counts), *new.shape)
        self.solve = None

    @torch.no_grad()
    def consolidate(self, fisher: Mapping[Any, Tensor] | Sequence[Tensor], directions: Mapping[Tensor, Tensor]) -> None:
        """End a task: F_old <- (F_old + F)/2, or F at first, and keep its directions.

        ``directions`` are those of :func:`output_gradients`.
        """
        metric = match_fisher(self, fisher)
        lengths = {len(stack) for stack in directions.values()}
        if len(lengths) != 1 or any(p not in directions for p in metric):
            raise ValueError(
                f"directions need as many rows for every parameter, got {sorted(lengths)}: output_gradients()"
            )
        self.counts.append(lengths.pop())
        quota = max(1, self.most // len(self.counts))
        kept = self._kept_indices(quota)
        for p, value in metric.items():
            state = self.state[p]
            for key in MOMENTS:
                state.pop(key, None)
            old, state["fisher_new"] = state.get("fisher_old"), copy_layout(value, p)
            state["fisher_old"] = copy_layout(value, p) if old is None else (old + state["fisher_new"]) / 2
            new = directions[p].to(state_dtype(p))
            before = state.get("directions")
            if before is None:  # the first task, or a parameter that joined in this one
                before = new.new_zeros(sum(self.counts[:-1]), *p.shape)
            state["directions"] = torch.cat([before, new])[kept.to(new.device)]
        self.counts = [min(count, quota) for count in self.counts][-self.most :]
        self.solve = None

    def _kept_indices(self, quota: int) -> Tensor:
        """Return indices of the first ``quota`` directions of the newest ``most`` tasks."""
        starts = [sum(self.counts[:k]) for k in range(len(self.counts))]
        newest = list(zip(starts, self.counts, strict=True))[-self.most :]
        return torch.cat([torch.arange(start, start + min(count, quota)) for start, count in newest])

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update theta <- theta + v; in the first task by Adam or SGD."""
        loss = begin_step(self, closure)
        moving = [p for p in self._all_parameters if p.grad is not None]
        for p in moving:
            check_gradient(p, "FOPNG")
        gradients = {p: p.grad.to(state_dtype(p)) for p in moving if p.grad is not None}
        found = self._project(gradients) if self.counts else self._first_step(gradients)
        for group in self.param_groups:
            for p in group["params"]:
                if p in found:
                    p.add_(found[p], alpha=-float(group["lr"]))
        return loss

    def _first_step(self, gradients: dict[Tensor, Tensor]) -> dict[Tensor, Tensor]:
        if self.first == "sgd" or not gradients:
            return gradients
        states = [self.state[p] for p in gradients]
        moves = adam_directions(list(gradients), list(gradients.values()), states, (0.9, 0.999), 1e-8)
        return dict(zip(gradients, moves, strict=True))

    def _project(self, gradients: dict[Tensor, Tensor]) -> dict[Tensor, Tensor]:
        known = [p for p in self._all_parameters if "fisher_new" in self.state[p]]
        if any("fisher_new" not in self.state[p] for p in gradients):
            raise RuntimeError(
                "a parameter trains that the last consolidate() did not know: optimizer.begin(fisher) before its step"
            )
        olds, news, stacks = ([self.state[p][k] for p in known] for k in ("fisher_old", "fisher_new", "directions"))
        if self.solve is None:
            precision = max(torch.finfo(stack.dtype).eps for stack in stacks)
            self.solve = invert_gram(gram(olds, news, stacks, self.damping), self.projection, self.damping, precision)
        wanted = [gradients[p] if p in gradients else torch.zeros_like(old) for p, old in zip(known, olds, strict=True)]
        moves = project(wanted, olds, news, stacks, self.solve, self.damping, self.projection)
        return {p: move for p, move in zip(known, moves, strict=True) if p in gradients}

    def replace(self, old: Tensor, new: Tensor) -> None:
        """Put ``new``, with more rows, in place of ``old``; directions are zero in new rows."""
        check_replacement(old, new)
        replace_parameter(self, old, new)
        self.solve = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state with ``"counts"``, the number of directions of each task."""
        return {**super().state_dict(), "counts": list(self.counts)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly where ``state_dict`` was taken."""
        if "counts" not in state_dict:
            raise ValueError("the state has no entry 'counts', so it is no FOPNG's; load FOPNG.state_dict()'s")
        super().load_state_dict(state_dict)
        keep_state_dtype(self, state_dict)
        self.counts, self.solve = list(state_dict["counts"]), None

    def __getstate__(self) -> dict[str, Any]:
        own = ("damping", "most", "projection", "first", "counts", "solve")
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in own}}
