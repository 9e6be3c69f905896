"""TMLN, trajectory-modulated landscape navigation (Aguilar et al. 2026, section 3 and Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from tmln.optim.foreach import add_, add_product_, scaled
from tmln.optim.guards import check_above, check_at_least, check_choice, check_gradient
from tmln.optim.matching import match_fisher, parameter_names

Geometry = Literal["fisher", "euclidean", "euclidean-score"]
Form = Literal["scaled", "proximal"]
_CHOICES = {
    "geometry": ("fisher", "euclidean", "euclidean-score"),
    "form": ("scaled", "proximal"),
    "score_fisher": ("previous", "current"),
    "score_max": ("global", "tensor"),
}


class Consolidation(NamedTuple):
    """What a task boundary found: the largest raw score, and the share of parameters above 1% of it."""

    peak: float
    active: float


def preconditioner(fisher: Tensor | None, sensitivity: Tensor, damping: float, trajectory: float) -> Tensor:
    """P = 1 / (F + lambda + gamma*S-bar), elementwise; no F is F = 0."""
    denominator = sensitivity.mul(trajectory).add_(damping)
    return (denominator if fisher is None else denominator.add_(fisher)).reciprocal_()


def sensitivity_score(path: Tensor, displacement: Tensor, fisher: Tensor | None, eps: float) -> Tensor:
    """s = relu(omega) / (F*dtheta^2/2 + eps); no F is the Euclidean form relu(omega) / (dtheta^2 + eps)."""
    distance = displacement.square()
    if fisher is not None:
        distance.mul_(fisher).mul_(0.5)
    return path.relu().div_(distance.add_(eps))


class TMLN(Optimizer):
    r"""theta <- theta - eta * g / (F + lambda + gamma*S-bar), with F and S-bar frozen between task boundaries.

    Use it like any optimizer, and tell it where a task ends:

    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = TMLN(model.parameters(), lr=0.01)
    >>> x, y = torch.randn(8, 4), torch.randint(2, (8,))
    >>> torch.nn.functional.cross_entropy(model(x), y).backward()
    >>> optimizer.step()
    >>> from tmln.curvature import diagonal_fisher
    >>> _ = optimizer.consolidate(diagonal_fisher(model, [(x, y)]))  # the task's end: (x, y) from your memory

    Args:
        lr: eta. In the first task, where F = S-bar = 0, the step is SGD's at ``lr / damping``.
        damping: lambda > 0.
        trajectory: gamma; 0 is the ablation "Static".
        geometry: ``"euclidean"`` drops F from the step and from the score (the ablation), ``"euclidean-score"``
            from the score only.
        form: ``"scaled"`` is the paper's equation 5; ``"proximal"`` its appendix, g / (F + 1/eta + gamma*S-bar).
        eps: added to the distance that normalises a score.
        momentum, weight_decay: as in SGD, applied to the gradient before it is divided.
        clip_norm: clip the norm of all gradients together; unlike ``clip_grad_norm_`` before the step, the path
            integral still sees the gradient as it was.
        score_fisher: the F that normalises a task's score: of the ``"previous"`` boundary, as in Algorithm 1,
            or the ``"current"`` one.
        score_max: a task's scores are divided by their maximum over all parameters (``"global"``) or in each tensor.
        error_if_nonfinite: look for NaN and infinite gradients before every step (costs a pass over them).
        foreach: ``False`` walks the tensors one by one, with the same result.

    ``state[p]`` holds ``fisher`` (F), ``sensitivity`` (S-bar) and ``anchor`` (theta at the last boundary).
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.01,
        damping: float = 0.1,
        trajectory: float = 1.0,
        *,
        geometry: Geometry = "fisher",
        form: Form = "scaled",
        eps: float = 1e-8,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
        score_fisher: Literal["previous", "current"] = "previous",
        score_max: Literal["global", "tensor"] = "global",
        maximize: bool = False,
        foreach: bool | None = None,
        error_if_nonfinite: bool = False,
    ) -> None:
        if clip_norm is not None:
            check_above("clip_norm", clip_norm, 0.0)
        defaults = {
            "lr": lr,
            "damping": damping,
            "trajectory": trajectory,
            "geometry": geometry,
            "form": form,
            "eps": eps,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "score_fisher": score_fisher,
            "score_max": score_max,
            "maximize": maximize,
            "foreach": foreach,
            "clip_norm": clip_norm,
            "error_if_nonfinite": error_if_nonfinite,
            "metric": None,  # the [lambda, gamma] that the preconditioner in use was made with
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            for name in ("lr", "trajectory", "momentum", "weight_decay"):
                check_at_least(name, float(group[name]), 0.0)
            for name in ("damping", "eps"):
                check_above(name, group[name], 0.0)
            for name, choices in _CHOICES.items():
                check_choice(name, group[name], choices)
        except ValueError:
            self.param_groups.pop()
            raise

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        moving = [[p for p in group["params"] if p.grad is not None] for group in self.param_groups]
        gradients = {p: p.grad for params in moving for p in params if p.grad is not None}
        for p in gradients:
            check_gradient(p, "TMLN")
        if self.defaults["error_if_nonfinite"]:
            for p, gradient in gradients.items():
                if not gradient.isfinite().all():
                    raise FloatingPointError(
                        f"the gradient of {parameter_names(self)[p]} is not finite; nothing was stepped. "
                        "Lower lr, raise damping, or look at the batch"
                    )
        scale = 1.0
        if self.defaults["clip_norm"] is not None:
            norm = float(torch.nn.utils.get_total_norm(gradients.values()))
            scale = min(1.0, self.defaults["clip_norm"] / (norm + 1e-6))
        for group, params in zip(self.param_groups, moving, strict=True):
            if params:
                self._move(group, params, [gradients[p] for p in params], scale)
        return loss

    def _move(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], scale: float) -> None:
        """One group's step. Without momentum and decay: two calls, no temporaries."""
        self._fix_metric(group)
        states = [self._state(p, group) for p in params]
        metric = [self._preconditioner(state, group) for state in states]
        raw_path = [state["raw_path"] for state in states]
        lr = 1.0 if group["form"] == "proximal" else float(group["lr"])
        sign = -1.0 if group["maximize"] else 1.0
        foreach = group["foreach"] is not False
        if not (group["momentum"] or group["weight_decay"]):
            add_product_(raw_path, grads, grads, lr * scale, foreach)
            add_product_(params, metric, grads, -lr * scale * sign, foreach)
            return
        directions = scaled(grads, sign * scale, foreach)
        if group["weight_decay"]:
            add_(directions, params, group["weight_decay"], foreach)
        if group["momentum"]:
            for p, state in zip(params, states, strict=True):
                state.setdefault("momentum_buffer", torch.zeros_like(p))
            velocities = [state["momentum_buffer"] for state in states]
            add_(directions, velocities, group["momentum"], foreach)
            for state, velocity in zip(states, directions, strict=True):
                state["momentum_buffer"] = velocity
        add_product_(raw_path, grads, directions, sign * lr, foreach)
        add_product_(params, metric, directions, -lr, foreach)

    @torch.no_grad()
    def consolidate(self, fisher: Mapping[Any, Tensor] | Sequence[Tensor] | None = None) -> Consolidation:
        """A task boundary: score the path, add it to the shield, take the new metric, drop the anchor here.

        ``fisher`` is what :func:`tmln.diagonal_fisher` returns, ``{parameter: tensor}``, or a sequence in the order
        of the parameters; nothing under ``geometry="euclidean"``. If it raises, nothing has changed.
        """
        if not any(self.state.values()):
            raise RuntimeError("consolidate() before any step(): there is no path to score; train first")
        metric = match_fisher(self, fisher)
        scores: dict[Tensor, Tensor] = {}
        for group, p in self._with_state():
            path = self.path(p)
            if not path.isfinite().all():
                raise FloatingPointError(
                    f"the path integral of {parameter_names(self)[p]} is not finite; lower lr ({float(group['lr'])}) "
                    f"or raise damping ({group['damping']})"
                )
            old = self.state[p].get("fisher")
            weight = metric.get(p, old) if group["score_fisher"] == "current" else old
            if group["geometry"] != "fisher":
                weight = None
            scores[p] = sensitivity_score(path, p - self.state[p]["anchor"], weight, group["eps"])
        peak = max((float(s.max()) for s in scores.values() if s.numel()), default=0.0)
        if not math.isfinite(peak):
            raise FloatingPointError(f"a score overflowed ({peak}); raise eps")
        active = 0
        for group, p in self._with_state():
            top = peak if group["score_max"] == "global" else float(scores[p].max())
            if top > 0:
                share = scores.pop(p).div_(top)
                active += int((share > 0.01).sum())
                self.state[p]["sensitivity"].add_(share)
            self.state[p]["anchor"].copy_(p)
            self.state[p]["raw_path"].zero_()
            self.state[p].pop("path", None)
        self._take_metric(metric)
        return Consolidation(peak, active / max(1, sum(p.numel() for _, p in self._with_state())))

    @torch.no_grad()
    def refresh(self, fisher: Mapping[Any, Tensor] | Sequence[Tensor]) -> None:
        """A new F in the middle of a task: the metric changes, the path so far is kept."""
        metric = match_fisher(self, fisher)
        for _, p in self._with_state():
            self._fold(p)
        self._take_metric(metric)

    @torch.no_grad()
    def path(self, p: Tensor) -> Tensor:
        """omega: the path integral of -g dtheta over the current task so far."""
        group = next((g for g in self.param_groups if any(q is p for q in g["params"])), None)
        if group is None:
            raise KeyError("path(p): p is not a parameter of this optimizer")
        if not self.state.get(p):
            return torch.zeros_like(p)
        state = self.state[p]
        omega: Tensor = self._preconditioner(state, group) * state["raw_path"]
        return omega + state["path"] if "path" in state else omega

    def state_dict(self) -> dict[str, Any]:
        packed = super().state_dict()
        packed["state"] = {
            index: {key: value for key, value in state.items() if key != "preconditioner"}
            for index, state in packed["state"].items()
        }
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        # torch casts state to the parameter's dtype; that of half-precision parameters stays in float32
        ids = [i for group in state_dict["param_groups"] for i in group["params"]]
        params = [p for group in self.param_groups for p in group["params"]]
        for i, p in zip(ids, params, strict=True):
            if p.dtype != _state_dtype(p):
                for key, value in state_dict["state"].get(i, {}).items():
                    self.state[p][key] = value.to(p.device, _state_dtype(p), copy=True)

    # -- the state of one parameter ------------------------------------------------------------------------------

    def _state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[p]
        if not state:
            dtype = _state_dtype(p)
            state["anchor"] = p.detach().to(dtype, copy=True)
            if group["geometry"] != "euclidean":
                state["fisher"] = torch.zeros_like(p, dtype=dtype)
            state["sensitivity"] = torch.zeros_like(p, dtype=dtype)
            state["raw_path"] = torch.zeros_like(p, dtype=dtype)
        return state

    def _fix_metric(self, group: dict[str, Any]) -> None:
        """Where lambda, gamma or (proximal) eta changed: bank the path walked under the old metric, take the new."""
        damping = group["damping"]
        if group["form"] == "proximal":
            damping = 1.0 / float(group["lr"]) if group["lr"] else math.inf
        wanted = [damping, group["trajectory"]]
        if group["metric"] != wanted:
            if group["metric"] is not None:
                for p in group["params"]:
                    if self.state.get(p):
                        self._fold(p)
                        self.state[p].pop("preconditioner", None)
            group["metric"] = wanted

    @staticmethod
    def _preconditioner(state: dict[str, Tensor], group: dict[str, Any]) -> Tensor:
        if "preconditioner" not in state:
            damping, trajectory = group["metric"] or (group["damping"], group["trajectory"])
            state["preconditioner"] = preconditioner(state.get("fisher"), state["sensitivity"], damping, trajectory)
        return state["preconditioner"]

    def _fold(self, p: Tensor) -> None:
        self.state[p]["path"] = self.path(p)
        self.state[p]["raw_path"].zero_()

    def _take_metric(self, metric: Mapping[Tensor, Tensor]) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p in metric:
                    self._state(p, group)["fisher"].copy_(metric[p])
                if self.state.get(p):
                    self.state[p].pop("preconditioner", None)

    def _with_state(self) -> Iterator[tuple[dict[str, Any], Tensor]]:
        return ((g, p) for g in self.param_groups for p in g["params"] if self.state.get(p))


def _state_dtype(p: Tensor) -> torch.dtype:
    """Half-precision parameters keep their sums in float32: in 8 bits of mantissa they would stop growing."""
    return torch.float32 if p.dtype in (torch.float16, torch.bfloat16) else p.dtype
