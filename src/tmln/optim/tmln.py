"""TMLN, trajectory-modulated landscape navigation (Aguilar et al. 2026, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from tmln.distributed.process_group import Group, Ranks, ranks_of
from tmln.optim.boundary import (
    Consolidation,
    apply_boundary,
    check_same_fisher,
    compute_boundary,
    match_fisher,
    sensitivity_score,
)
from tmln.optim.checks import (
    begin_step,
    check_above,
    check_at_least,
    check_betas,
    check_choice,
    check_finite,
    check_fraction,
    check_gradient,
    check_parameters,
    check_same_names,
    name_parameters,
)
from tmln.optim.protection import Protection, measure_protection, shields_of, warn_of_shield
from tmln.optim.state import check_replacement, keep_state_dtype, replace_parameter, state_dtype
from tmln.optim.update import (
    STRETCH,
    WAITING,
    Natural,
    accumulate_path,
    clip_factor,
    copy_layout,
    fix_metric,
    flush_path,
    path_so_far,
    preconditioner,
    restore_waiting,
    set_fisher,
    snapshot,
    state_of,
    step_group,
    without_waiting,
)

__all__ = ["TMLN", "Consolidation", "Form", "Geometry", "Protection", "preconditioner", "sensitivity_score"]

Geometry = Literal["fisher", "euclidean", "euclidean-score", "kfac"]
Form = Literal["scaled", "proximal"]
_CHOICES = {
    "geometry": ("fisher", "euclidean", "euclidean-score", "kfac"),
    "form": ("scaled", "proximal"),
    "score_fisher": ("previous", "current"),
    "score_max": ("global", "tensor"),
    "base": ("sgd", "adam"),
}
_LATER = {  # settings that older states lack, with the values that they had
    "keep_momentum": False,
    "looked": False,
    "stretch": 0,
    "base": "sgd",
    "betas": (0.9, 0.999),
    "base_eps": 1e-8,
    "decay": 1.0,
    "capturable": False,
    "offload": False,
    "compact": False,
}


class TMLN(Optimizer):
    r"""SGD with a metric that is frozen between task boundaries and slows important weights.

    .. math::
        \theta \leftarrow \theta - \eta \, \frac{g}{F + \lambda + \gamma \bar S}

    F is the diagonal Fisher of a replay memory, S-bar a sum of scores of the path integral
    omega = -sum g*dtheta of each task. Use it like any optimizer, and tell it where a task ends:

    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = TMLN(model.parameters(), lr=0.01)
    >>> x, y = torch.randn(8, 4), torch.randint(2, (8,))
    >>> torch.nn.functional.cross_entropy(model(x), y).backward()
    >>> optimizer.step()
    >>> from tmln.curvature import diagonal_fisher
    >>> fisher = diagonal_fisher(model, [(x, y)])  # (x, y) from your memory
    >>> _ = optimizer.consolidate(fisher)  # the task's end

    Args:
        params: parameters or parameter groups; ``named_parameters()`` gives errors with names.
        lr: eta. In the first task, where F = S-bar = 0, the step is SGD's at ``lr / damping``.
        damping: lambda > 0.
        trajectory: gamma; 0 is the ablation "Static".
        geometry: ``"euclidean"`` drops F from the step and from the score (the ablation),
            ``"euclidean-score"`` from the score only. ``"kfac"`` is
            :class:`tmln.optim.TMLNKFAC`, which takes the model.
        form: ``"scaled"`` is the paper's equation 5, ``"proximal"`` its appendix,
            g / (F + 1/eta + gamma*S-bar).
        eps: added to the distance that normalises a score.
        momentum: as in SGD, applied to the gradient before it is divided.
        weight_decay: as in SGD, added to the gradient before it is divided.
        clip_norm: largest norm of all gradients together; unlike ``clip_grad_norm_`` before the
            step, the path integral still sees unclipped gradients.
        score_fisher: the F that normalises a task's score: of the ``"previous"`` boundary, as in
            Algorithm 1, or the ``"current"`` one.
        score_max: a task's scores are divided by their maximum over all parameters
            (``"global"``) or in each tensor (``"tensor"``; at least 1e-8 of the global one).
        maximize: maximize instead of minimize.
        foreach: ``False`` steps one tensor at a time, with the same result.
        error_if_nonfinite: check gradients for NaN and infinity before every step.
        keep_momentum: keep the momentum (or Adam's moments) over task boundaries.
        base: ``"adam"`` puts the shield on Adam's direction a = m/(sqrt(v) + ``base_eps``):
            theta <- theta - eta * (a + weight_decay*theta) * lambda/(F + lambda + gamma*S-bar).
            ``lr`` is then AdamW's, which the first task is (1e-3, say; the default is a rate for
            SGD), whatever ``damping`` is; later tasks are slowed as :meth:`protection` says.
        betas: Adam's decay rates.
        base_eps: Adam's eps.
        decay: the factor of S-bar at a boundary, before the new score is added. 1, as in the
            paper, keeps all of it; less lets old scores fade where boundaries are many.
        capturable: keep Adam's counts on the device, as ``torch.optim.AdamW`` for CUDA graphs.
        offload: keep anchor, F and S-bar in host memory, where no step needs them: 8 bytes a
            weight are left on the device in place of 20.
        compact: keep F and S-bar in bfloat16, and compute P in every step, one parameter at a time:
            12 bytes a weight in place of 20 (each 4 more after 1024 steps of a task). P is that of
            the F and S-bar given to within 2^-8 (0.4%); anchor and path stay exact. For weights in
            float64 F and S-bar are in float32.

    ``state[p]`` holds ``fisher`` (F), ``sensitivity`` (S-bar) and ``anchor`` (theta at the last
    boundary). Where a penalty writes into ``.grad`` or moves weights, see :meth:`after_backward`.
    ``torch.compile(optimizer.step, fullgraph=True)`` compiles the first step, which makes the
    state, and once for all others, whatever ``lr`` is, also over boundaries (the proximal form has
    lr in P and compiles again).
    """

    _warned_of_shield = False
    _frames = 3  # from a warning in consolidate() to its caller

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
        keep_momentum: bool = False,
        base: Literal["sgd", "adam"] = "sgd",
        betas: tuple[float, float] = (0.9, 0.999),
        base_eps: float = 1e-8,
        decay: float = 1.0,
        capturable: bool = False,
        offload: bool = False,
        compact: bool = False,
    ) -> None:
        check_parameters(params, type(self).__name__)
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
            "keep_momentum": keep_momentum,
            "base": base,
            "betas": betas,
            "base_eps": base_eps,
            "decay": decay,
            "capturable": capturable,
            "offload": offload,
            "compact": compact,
            "score_fisher": score_fisher,
            "score_max": score_max,
            "maximize": maximize,
            "foreach": foreach,
            "clip_norm": clip_norm,
            "error_if_nonfinite": error_if_nonfinite,
            "metric": None,  # [lambda, gamma] of the current preconditioner
            "stretch": 0,  # steps since the path was last flushed
            "looked": False,  # between after_backward() and after_update(), when step() leaves the path alone
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group as ``torch.optim`` does; a refused one leaves the optimizer as it was."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            for name in ("lr", "trajectory", "momentum", "weight_decay"):
                check_at_least(name, float(group[name]), 0.0)
            for name in ("damping", "eps", "base_eps"):
                check_above(name, group[name], 0.0)
            check_betas(group["betas"])
            check_fraction("decay", group["decay"], closed=True)
            for name, choices in _CHOICES.items():
                check_choice(name, group[name], choices)
            if group["base"] == "adam" and group["momentum"]:
                raise ValueError(
                    f"base 'adam' has a momentum of its own, betas[0]; set momentum={group['momentum']} to 0"
                )
            self._check_geometry(group)
        except ValueError:
            self.param_groups.pop()
            raise

    def _check_geometry(self, group: dict[str, Any]) -> None:
        if group["geometry"] == "kfac":
            raise ValueError(
                "geometry 'kfac' measures layers, which a list of parameters does not show: "
                "use tmln.optim.TMLNKFAC(model, ...)"
            )

    def _natural(self, gradients: Mapping[Tensor, Tensor]) -> Natural | None:
        """Return the map from gradients to directions, or None where they are the same."""
        return None

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update weights and path: theta -= eta*P*g, omega -= g*(theta_after - theta_before)."""
        loss = begin_step(self, closure)
        gradients = {p: p.grad for group in self.param_groups for p in group["params"] if p.grad is not None}
        for p in gradients:
            check_gradient(p, type(self).__name__)
        if self.defaults["error_if_nonfinite"]:
            check_finite(gradients, name_parameters(self))
        scale: float | Tensor = 1.0
        if self.defaults["clip_norm"] is not None:
            scale = clip_factor(gradients.values(), self.defaults["clip_norm"])
        natural = self._natural(gradients)
        for group in self.param_groups:
            if params := [p for p in group["params"] if p in gradients]:
                fix_metric(group, (self.state[p] for p in group["params"] if self.state.get(p)))
                states = [state_of(self, p, group) for p in params]
                step_group(params, [gradients[p] for p in params], states, group, scale, natural)
                group["stretch"] += 1
                if group["stretch"] == STRETCH:
                    group["stretch"] = 0
                    for state in states:
                        flush_path(state, group)
        return loss

    @torch.no_grad()
    def after_backward(self) -> None:
        """Remember the task's gradient and the weights until :meth:`after_update` adds the path.

        For loops in which something else writes into ``.grad`` or moves weights::

            loss.backward()  # of the task; with a scaler, then scaler.unscale_(optimizer)
            optimizer.after_backward()
            penalty.add_gradient()  # into .grad
            optimizer.step()
            penalty.pull()  # moves weights
            optimizer.after_update()  # omega -= g * (theta now - theta then)

        Otherwise ``step()`` alone is right, whatever ``momentum``, ``weight_decay`` and
        ``clip_norm`` are. An earlier ``after_backward()`` is completed first.
        """
        for group in self.param_groups:
            for p in group["params"]:
                check_gradient(p, type(self).__name__)
        self.after_update()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    snapshot(p, state_of(self, p, group))
            group["looked"] = True

    @torch.no_grad()
    def after_update(self) -> None:
        """Add all moves since :meth:`after_backward` to the path, whatever made them."""
        for group in self.param_groups:
            if group["looked"]:
                moved = [p for p in group["params"] if "departure" in self.state.get(p, {})]
                accumulate_path(moved, [self.state[p] for p in moved], group)
                group["looked"] = False

    @torch.no_grad()
    def consolidate(
        self, fisher: Mapping[Any, Tensor] | Sequence[Tensor] | None = None, *, group: Group = None
    ) -> Consolidation:
        """End a task: add the path's score to S-bar, set the new F, and start a new path here.

        Warns, once, if the shield slows next to nothing or next to everything. If it raises,
        nothing has changed.

        Args:
            fisher: what :func:`tmln.diagonal_fisher` returns, ``{parameter: tensor}``, or a
                sequence in the order of the parameters; None under ``geometry="euclidean"``.
            group: where ``torch.distributed`` is initialised, all ranks (of ``group``)
                consolidate together: scores are divided by one maximum over all of them, and an F
                that differs between them is refused. ``"local"``: this rank learns on its own.
                Where each rank has parameters of its own (``ZeroRedundancyOptimizer``: call
                ``zero.optim.consolidate(...)`` on every rank), results other than ``peak`` are of
                these.

        Returns:
            Statistics of the scores and of the new shield.
        """
        ranks = ranks_of(group)
        if not any(ranks.gather_objects(lambda: any(self.state.values()), "optimizer.consolidate()")):
            raise RuntimeError("consolidate() before any step(): there is no path to score; train first")
        boundary = compute_boundary(self, self._match_fisher(fisher, ranks), ranks)
        has_shield = any(g["trajectory"] or g["geometry"] != "euclidean" for g in self.param_groups)
        shield = boundary.protection
        if (shield.nil or shield.too_strong) and has_shield and not self._warned_of_shield:
            self._warned_of_shield = True
            warn_of_shield(shield, stacklevel=self._frames)  # before anything changes: a filter may make it raise
        apply_boundary(self, boundary)
        return boundary.found

    def _match_fisher(
        self, fisher: Mapping[Any, Tensor] | Sequence[Tensor] | None, ranks: Ranks
    ) -> dict[Tensor, Tensor]:
        matched = ranks.run_together(lambda: match_fisher(self, fisher))
        check_same_fisher(fisher, ranks)
        return matched

    @torch.no_grad()
    def refresh(self, fisher: Mapping[Any, Tensor] | Sequence[Tensor], *, group: Group = None) -> None:
        """Set a new F in the middle of a task; the path so far is kept."""
        metric = {p: copy_layout(value, p) for p, value in self._match_fisher(fisher, ranks_of(group)).items()}
        for settings in self.param_groups:
            for p in settings["params"]:
                if self.state.get(p):
                    flush_path(self.state[p], settings)
        set_fisher(self, metric)

    def replace(self, old: Tensor, new: Tensor) -> None:
        """Put ``new``, a parameter with more rows, in place of ``old``: a head that grew.

        Old rows keep F, S-bar, path, anchor and momentum to the bit; new ones have F = S-bar = 0,
        no path, and their anchor where they begin. At any time, also between two boundaries::

            before, model.head = model.head, torch.nn.Linear(64, 4)
            for old, new in zip(before.parameters(), model.head.parameters()):
                with torch.no_grad():
                    new[: len(old)] = old
                optimizer.replace(old, new)
        """
        check_replacement(old, new)
        replace_parameter(self, old, new)

    @torch.no_grad()
    def path(self, p: Tensor) -> Tensor:
        """Return omega, the path integral of -g dtheta over the current task so far."""
        group = next((g for g in self.param_groups if any(q is p for q in g["params"])), None)
        if group is None:
            raise KeyError("path(p): p is not a parameter of this optimizer")
        state = self.state.get(p)
        return path_so_far(p, state, group) if state else torch.zeros_like(p, dtype=state_dtype(p))

    def protection(self) -> Protection:
        """Return by how much the current metric slows the weights.

        ``print(optimizer.protection())``: "2.5% of the weights slowed by more than 10% ...".
        """
        return measure_protection(shields_of(self, {}, {}))

    def state_dict(self) -> dict[str, Any]:
        """Return the state without P, which follows from the rest."""
        packed = super().state_dict()
        packed["state"] = {
            index: {key: value for key, value in state.items() if key != "preconditioner"}
            for index, state in packed["state"].items()
        }
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; sums of half-precision weights stay in float32, unlike in torch.

        Where both were made of ``named_parameters()``, a state of other parameters is refused.
        """
        check_same_names(self, state_dict)
        # where and in how many bytes state is kept is no part of a state
        kept = [{name: group[name] for name in ("offload", "compact")} for group in self.param_groups]
        super().load_state_dict({**state_dict, "state": without_waiting(state_dict["state"])})
        keep_state_dtype(self, state_dict, WAITING)
        for group, own in zip(self.param_groups, kept, strict=True):
            group.update(own)
        restore_waiting(self, state_dict)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in _LATER.items():
                group.setdefault(name, value)
