"""FOPNG, Fisher-orthogonal projected natural gradient (Garg et al. 2026, arXiv 2601.12816), on diagonal Fishers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, ParamsT

from tmln.curvature.preserve_state import preserve_model
from tmln.optim.adam import MOMENTS, adam_directions
from tmln.optim.checks import check_above, check_at_least, check_choice, check_gradient
from tmln.optim.growth import check_replacement, replace_parameter
from tmln.optim.precision import keep_state_dtype, state_dtype
from tmln.optim.preconditioner import laid_out, match_fisher
from tmln.optim.step_utils import opened

PROJECTIONS = ("orthogonal", "public")
FIRST = ("adam", "sgd")


def output_gradients(
    model: nn.Module, inputs: Tensor, labels: Tensor, of: Literal["mean", "label"] = "mean"
) -> dict[Tensor, Tensor]:
    """``{parameter: [samples, *shape]}``: what moves each sample's outputs, their mean or its label's, in eval mode.

    Outputs that are closed, -inf, are not among them.
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
    """A = G'F_old (F_new + lambda)^-1 F_old G, in float64 and on the host: it is small, not every device has these."""
    found = torch.zeros(len(stacks[0]), len(stacks[0]), dtype=torch.float64)
    for old, new, stack in zip(olds, news, stacks, strict=True):
        rows = (stack * (old / (new + damping).sqrt())).flatten(1)
        found += (rows @ rows.T).cpu()
    return found


def inverse(matrix: Tensor, projection: str, damping: float, precision: float) -> Tensor:
    """Of A as the projection needs it: its pseudo-inverse at rows of one length, or, ``"public"``, (A + lambda)^-1."""
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


def projected(
    gradients: Sequence[Tensor],
    olds: Sequence[Tensor],
    news: Sequence[Tensor],
    stacks: Sequence[Tensor],
    solve: Tensor,
    damping: float,
    projection: str,
) -> list[Tensor]:
    """v = (F_new + lambda)^-1 (g - F_old G A^-1 G'F_old u), scaled to v'(F_new + lambda)v = 1; new tensors.

    u is (F_new + lambda)^-1 g, for which G'F_old v = 0; in the public code it is g itself.
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
    r"""The steepest descent of length eta in the task's Fisher metric that is Fisher-orthogonal to old gradients.

    .. math::
        v = \arg\min_v g^\top v \quad\text{with}\quad v^\top F_{new}\, v = \eta^2, \quad G^\top F_{old}\, v = 0

    The first task is Adam's (``first``; there is nothing to be orthogonal to). At its end tell the optimizer what is to
    be kept, at the beginning of the next its metric, which otherwise is that of the task before:

    >>> model, x, y = nn.Linear(4, 2), torch.randn(8, 4), torch.randint(2, (8,))
    >>> optimizer = FOPNG(model.parameters(), lr=0.01)
    >>> nn.functional.cross_entropy(model(x), y).backward()
    >>> optimizer.step()
    >>> from tmln.curvature import diagonal_fisher
    >>> fisher = diagonal_fisher(model, [(x, y)])
    >>> optimizer.consolidate(fisher, output_gradients(model, x[:3], y[:3]))  # a task's end
    >>> optimizer.begin(fisher)  # the next one's beginning: of its own data
    >>> optimizer.step()

    ``damping`` is lambda, added to F_new. F_old is the mean of the last one and the new task's. At most ``most``
    directions are kept, of every task alike; of more tasks than that, of the newest. ``projection="public"``: as in the
    authors' public code, which puts g in place of the natural gradient (F_new + lambda)^-1 g, and adds lambda to A; its
    moves are not orthogonal.
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
        self.solve: Tensor | None = None  # A^-1, made anew when F or G have changed
        super().__init__(params, {"lr": lr, "geometry": "fisher"})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Like every optimizer's."""
        check_at_least("lr", float(param_group.get("lr", self.defaults["lr"])), 0.0)
        super().add_param_group(param_group)

    @property
    def _all(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def begin(self, fisher: Mapping[Any, Tensor] | Sequence[Tensor]) -> None:
        """F_new: the diagonal Fisher of the task that begins, or, in its middle, goes on."""
        for p, value in match_fisher(self, fisher).items():
            state, new = self.state[p], laid_out(value, p)
            state["fisher_new"] = new
            if self.counts and "directions" not in state:  # it did not train before: nothing of it is to be kept
                state["fisher_old"] = torch.zeros_like(new)
                state["directions"] = new.new_zeros(sum(self.counts), *new.shape)
        self.solve = None

    @torch.no_grad()
    def consolidate(self, fisher: Mapping[Any, Tensor] | Sequence[Tensor], directions: Mapping[Tensor, Tensor]) -> None:
        """A task's end: F_old <- (F_old + F)/2, or F at first, and its :func:`output_gradients` are kept."""
        metric = match_fisher(self, fisher)
        lengths = {len(stack) for stack in directions.values()}
        if len(lengths) != 1 or any(p not in directions for p in metric):
            raise ValueError(
                f"directions need as many rows for every parameter, got {sorted(lengths)}: output_gradients()"
            )
        self.counts.append(lengths.pop())
        quota = max(1, self.most // len(self.counts))
        kept = self._kept(quota)
        for p, value in metric.items():
            state = self.state[p]
            for key in MOMENTS:
                state.pop(key, None)
            old, state["fisher_new"] = state.get("fisher_old"), laid_out(value, p)
            state["fisher_old"] = laid_out(value, p) if old is None else (old + state["fisher_new"]) / 2
            new = directions[p].to(state_dtype(p))
            before = state.get("directions")
            if before is None:  # the first task, or a parameter that joined in this one
                before = new.new_zeros(sum(self.counts[:-1]), *p.shape)
            state["directions"] = torch.cat([before, new])[kept.to(new.device)]
        self.counts = [min(count, quota) for count in self.counts][-self.most :]
        self.solve = None

    def _kept(self, quota: int) -> Tensor:
        """The places of the first ``quota`` directions of each task, of the newest ``most`` tasks."""
        starts = [sum(self.counts[:k]) for k in range(len(self.counts))]
        newest = list(zip(starts, self.counts, strict=True))[-self.most :]
        return torch.cat([torch.arange(start, start + min(count, quota)) for start, count in newest])

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """theta <- theta + v; in the first task a step of Adam or SGD."""
        loss = opened(self, closure)
        moving = [p for p in self._all if p.grad is not None]
        for p in moving:
            check_gradient(p, "FOPNG")
        gradients = {p: p.grad.to(state_dtype(p)) for p in moving if p.grad is not None}
        found = self._projected(gradients) if self.counts else self._plain(gradients)
        for group in self.param_groups:
            for p in group["params"]:
                if p in found:
                    p.add_(found[p], alpha=-float(group["lr"]))
        return loss

    def _plain(self, gradients: dict[Tensor, Tensor]) -> dict[Tensor, Tensor]:
        if self.first == "sgd" or not gradients:
            return gradients
        states = [self.state[p] for p in gradients]
        moves = adam_directions(list(gradients), list(gradients.values()), states, (0.9, 0.999), 1e-8)
        return dict(zip(gradients, moves, strict=True))

    def _projected(self, gradients: dict[Tensor, Tensor]) -> dict[Tensor, Tensor]:
        known = [p for p in self._all if "fisher_new" in self.state[p]]
        if any("fisher_new" not in self.state[p] for p in gradients):
            raise RuntimeError(
                "a parameter trains that the last consolidate() did not know: optimizer.begin(fisher) before its step"
            )
        olds, news, stacks = ([self.state[p][k] for p in known] for k in ("fisher_old", "fisher_new", "directions"))
        if self.solve is None:
            precision = max(torch.finfo(stack.dtype).eps for stack in stacks)
            self.solve = inverse(gram(olds, news, stacks, self.damping), self.projection, self.damping, precision)
        wanted = [gradients[p] if p in gradients else torch.zeros_like(old) for p, old in zip(known, olds, strict=True)]
        moves = projected(wanted, olds, news, stacks, self.solve, self.damping, self.projection)
        return {p: move for p, move in zip(known, moves, strict=True) if p in gradients}

    def replace(self, old: Tensor, new: Tensor) -> None:
        """``new`` is in the model in place of ``old``, with more rows, which no stored direction knows."""
        check_replacement(old, new)
        replace_parameter(self, old, new)
        self.solve = None

    def state_dict(self) -> dict[str, Any]:
        """As every optimizer's, with ``"counts"``: how many directions each task has."""
        return {**super().state_dict(), "counts": list(self.counts)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on exactly where ``state_dict`` was taken."""
        if "counts" not in state_dict:
            raise ValueError("the state has no entry 'counts', so it is no FOPNG's; load FOPNG.state_dict()'s")
        super().load_state_dict(state_dict)
        keep_state_dtype(self, state_dict)
        self.counts, self.solve = list(state_dict["counts"]), None

    def __getstate__(self) -> dict[str, Any]:
        own = ("damping", "most", "projection", "first", "counts", "solve")
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in own}}
