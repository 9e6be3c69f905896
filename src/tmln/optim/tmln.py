"""TMLN, trajectory-modulated landscape navigation (Aguilar et al. 2026, section 3 and Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from tmln.distributed.process_group import Group, Ranks, ranks_of
from tmln.optim.adam import check_betas
from tmln.optim.boundary import (
    Consolidation,
    Protection,
    cross,
    protection,
    sensitivity_score,
    shields_of,
    warn_of_nil,
    weigh,
)
from tmln.optim.checks import check_above, check_at_least, check_choice, check_finite, check_gradient, check_share
from tmln.optim.growth import check_replacement, replace_parameter
from tmln.optim.offload import WAITING, parted, restore
from tmln.optim.precision import keep_state_dtype, state_dtype
from tmln.optim.preconditioner import (
    check_agrees,
    laid_out,
    match_fisher,
    parameter_names,
    preconditioner,
    state_of,
    take_fisher,
)
from tmln.optim.step_utils import opened
from tmln.optim.update import STRETCH, Natural, arrive, bank, clipping, depart, fix_metric, step_group, walked_so_far

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
_LATER = {  # settings that states of before do not have, and what they were
    "keep_momentum": False,
    "looked": False,
    "stretch": 0,
    "base": "sgd",
    "betas": (0.9, 0.999),
    "base_eps": 1e-8,
    "decay": 1.0,
    "capturable": False,
    "offload": False,
}


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
            from the score only. ``"kfac"``: :class:`tmln.optim.TMLNKFAC`, which is given the model.
        form: ``"scaled"`` is the paper's equation 5; ``"proximal"`` its appendix, g / (F + 1/eta + gamma*S-bar).
        eps: added to the distance that normalises a score.
        momentum, weight_decay: as in SGD, applied to the gradient before it is divided.
        keep_momentum: carry the momentum (or Adam's means) over task boundaries, which otherwise forget it.
        base: ``"adam"`` puts the shield on Adam's direction a = m/(sqrt(v) + ``base_eps``), of ``betas``:
            theta <- theta - eta * (a + weight_decay*theta) * lambda/(F + lambda + gamma*S-bar). So ``lr`` is AdamW's,
            which the first task is, and later ones are slowed as :meth:`protection` says.
        decay: what is left of S-bar at a boundary, before the new score is added. 1, as in the paper, keeps all of
            it; where boundaries are many, less lets the oldest fade (:class:`tmln.Boundaries`).
        clip_norm: clip the norm of all gradients together; unlike ``clip_grad_norm_`` before the step, the path
            integral still sees the gradient as it was.
        score_fisher: the F that normalises a task's score: of the ``"previous"`` boundary, as in Algorithm 1,
            or the ``"current"`` one.
        score_max: a task's scores are divided by their maximum over all parameters (``"global"``) or in each tensor.
        error_if_nonfinite: look for NaN and infinite gradients before every step (costs a pass over them).
        foreach: ``False`` walks the tensors one by one, with the same result.
        offload: anchor, F and S-bar wait in host memory, as no step needs them: 8 bytes a weight are left on the device
            in place of 20, and a boundary fetches them tensor by tensor. On the CPU it changes nothing.
        capturable: keep Adam's counts where the weights are, as ``torch.optim.AdamW`` does for CUDA graphs.

    ``torch.compile(optimizer.step, fullgraph=True)`` compiles its first step, which makes the state, and once for all
    others, whatever ``lr`` is, a number or a tensor, and over boundaries (but the proximal form has lr in P).
    Where a penalty writes into ``.grad`` or moves weights, see :meth:`look`; what the shield does, :meth:`protection`.
    ``state[p]`` holds ``fisher`` (F), ``sensitivity`` (S-bar) and ``anchor`` (theta at the last boundary).
    """

    _warned_of_nil = False
    _frames = 3  # from a warning of consolidate() to whoever called it

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
            "keep_momentum": keep_momentum,
            "base": base,
            "betas": betas,
            "base_eps": base_eps,
            "decay": decay,
            "capturable": capturable,
            "offload": offload,
            "score_fisher": score_fisher,
            "score_max": score_max,
            "maximize": maximize,
            "foreach": foreach,
            "clip_norm": clip_norm,
            "error_if_nonfinite": error_if_nonfinite,
            "metric": None,  # the [lambda, gamma] that the preconditioner in use was made with
            "stretch": 0,  # steps since the path was last banked
            "looked": False,  # between look() and walk(), when step() leaves the path alone
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """A group that is refused leaves the optimizer as it was."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            for name in ("lr", "trajectory", "momentum", "weight_decay"):
                check_at_least(name, float(group[name]), 0.0)
            for name in ("damping", "eps", "base_eps"):
                check_above(name, group[name], 0.0)
            check_betas(group["betas"])
            check_share("decay", group["decay"], whole=True)
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
        """What makes directions of gradients in this step; None: they are their own."""
        return None

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """theta -= eta * g / (F + lambda + gamma*S-bar), and the path: omega += -g * (theta_after - theta_before)."""
        loss = opened(self, closure)
        gradients = {p: p.grad for group in self.param_groups for p in group["params"] if p.grad is not None}
        moving = [[p for p in group["params"] if p in gradients] for group in self.param_groups]
        for p in gradients:
            check_gradient(p, "TMLN")
        if self.defaults["error_if_nonfinite"]:
            check_finite(gradients, parameter_names(self))
        scale: float | Tensor = 1.0
        if self.defaults["clip_norm"] is not None:
            scale = clipping(gradients.values(), self.defaults["clip_norm"])
        natural = self._natural(gradients)
        for group, params in zip(self.param_groups, moving, strict=True):
            if params:
                fix_metric(group, (self.state[p] for p in group["params"] if self.state.get(p)))
                states = [state_of(self, p, group) for p in params]
                step_group(params, [gradients[p] for p in params], states, group, scale, natural)
                group["stretch"] += 1
                if group["stretch"] == STRETCH:
                    group["stretch"] = 0
                    for state in states:
                        bank(state, group)
        return loss

    @torch.no_grad()
    def after_backward(self) -> None:
        """Remember the task's gradient and the weights until :meth:`walk`, which takes the path from them.

        For loops in which something besides this optimizer writes into ``.grad`` or moves weights::

            loss.backward()        # the task's loss alone; with a scaler, then scaler.unscale_(optimizer)
            optimizer.after_backward()
            penalty.add_gradient()          # into .grad
            optimizer.step()
            penalty.pull()         # moves weights
            optimizer.after_update()       # omega -= g * (theta now - theta then)

        Otherwise ``step()`` alone is right, whatever ``momentum``, ``weight_decay`` and ``clip_norm`` are: it takes
        ``.grad`` as the task's and its move as the only one. An earlier ``after_backward()`` is completed first.
        """
        for group in self.param_groups:
            for p in group["params"]:
                check_gradient(p, "TMLN")
        self.after_update()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    depart(p, state_of(self, p, group))
            group["looked"] = True

    @torch.no_grad()
    def after_update(self) -> None:
        """After all moves of a step: count them, whoever made them. Does nothing without a :meth:`look` before."""
        for group in self.param_groups:
            if group["looked"]:
                moved = [p for p in group["params"] if "departure" in self.state.get(p, {})]
                arrive(moved, [self.state[p] for p in moved], group)
                group["looked"] = False

    @torch.no_grad()
    def consolidate(
        self, fisher: Mapping[Any, Tensor] | Sequence[Tensor] | None = None, *, group: Group = None
    ) -> Consolidation:
        """A task boundary: score the path, add it to the shield, take the new metric, drop the anchor here.

        ``fisher`` is what :func:`tmln.diagonal_fisher` returns, ``{parameter: tensor}``, or a sequence in the order
        of the parameters; nothing under ``geometry="euclidean"``. If it raises, nothing has changed. Warns, once, if
        the shield slows next to nothing.

        Where ``torch.distributed`` is initialised, all ranks (of ``group``) consolidate together: scores are divided by
        the one maximum over all of them, and an F that differs between them is refused. ``group="local"`` is for a rank
        that learns on its own. Where each rank has parameters of its own (``ZeroRedundancyOptimizer``: call
        ``zero.optim.consolidate(...)`` on every rank), what is found is of these, save ``peak``.
        """
        ranks = ranks_of(group)
        if not any(ranks.gather_objects(lambda: any(self.state.values()))):
            raise RuntimeError("consolidate() before any step(): there is no path to score; train first")
        boundary = weigh(self, self._agreed(fisher, ranks), ranks)
        meant = any(g["trajectory"] or g["geometry"] != "euclidean" for g in self.param_groups)
        if boundary.protection.nil and meant and not self._warned_of_nil:
            self._warned_of_nil = True
            warn_of_nil(stacklevel=self._frames)  # before anything changes: a filter may turn it into an exception
        cross(self, boundary)
        return boundary.found

    def _agreed(self, fisher: Mapping[Any, Tensor] | Sequence[Tensor] | None, ranks: Ranks) -> dict[Tensor, Tensor]:
        matched = ranks.run_together(lambda: match_fisher(self, fisher))
        check_agrees(fisher, ranks)
        return matched

    @torch.no_grad()
    def refresh(self, fisher: Mapping[Any, Tensor] | Sequence[Tensor], *, group: Group = None) -> None:
        """A new F in the middle of a task: the metric changes, the path so far is kept."""
        metric = {p: laid_out(value, p) for p, value in self._agreed(fisher, ranks_of(group)).items()}
        for settings in self.param_groups:
            for p in settings["params"]:
                if self.state.get(p):
                    bank(self.state[p], settings)
        take_fisher(self, metric)

    def replace(self, old: Tensor, new: Tensor) -> None:
        """``new`` is in the model in place of ``old``, with more rows: a head that grew. Its state follows it.

        Old rows keep F, S-bar, path, anchor and momentum to the bit; new ones are unshielded: F = S-bar = 0, no path,
        their anchor is where they begin. At any time, also between two boundaries::

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
        """omega: the path integral of -g dtheta over the current task so far."""
        group = next((g for g in self.param_groups if any(q is p for q in g["params"])), None)
        if group is None:
            raise KeyError("path(p): p is not a parameter of this optimizer")
        state = self.state.get(p)
        return walked_so_far(p, state, group) if state else torch.zeros_like(p, dtype=state_dtype(p))

    def protection(self) -> Protection:
        """What the shield does now, at any time: by how much the metric in force slows the weights.

        ``print(optimizer.protection())`` says it in words: "2.5% of the weights slowed by more than 10% ...".
        """
        return protection(shields_of(self, {}, {}))

    def state_dict(self) -> dict[str, Any]:
        """Without P = 1/(F + lambda + gamma*S-bar), which follows from the rest."""
        packed = super().state_dict()
        packed["state"] = {
            index: {key: value for key, value in state.items() if key != "preconditioner"}
            for index, state in packed["state"].items()
        }
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sums of half-precision weights stay in float32, where torch would cast them to the weights' type."""
        offload = [group["offload"] for group in self.param_groups]  # where state is kept is not part of it
        super().load_state_dict({**state_dict, "state": parted(state_dict["state"])})
        keep_state_dtype(self, state_dict, WAITING)
        for group, own in zip(self.param_groups, offload, strict=True):
            group["offload"] = own
        restore(self, state_dict)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in _LATER.items():
                group.setdefault(name, value)
