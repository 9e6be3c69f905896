"""OCAR (Urettini and Carta 2025): K-FAC natural-gradient steps on new and replayed samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from tmln.curvature.kfac import KFAC
from tmln.curvature.kfac_factors import Inputs, to_batch
from tmln.curvature.likelihoods import LogLikelihood
from tmln.distributed.process_group import SINGLE, Group, Ranks, ranks_of
from tmln.optim.checks import (
    begin_step,
    check_above,
    check_at_least,
    check_choice,
    check_fraction,
    check_gradient,
)
from tmln.optim.state import check_in_model, check_replacement, replace_parameter

REPLAY_WEIGHTS = ("one", "class_ratio")


def sample_weights(
    samples: int,
    replay: int,
    replay_weight: float | str,
    targets: Tensor | None = None,
    ranks: Ranks = SINGLE,
) -> Tensor | None:
    """Return weights w: 1 for new samples, ``replay_weight`` for the last ``replay`` ones.

    "class_ratio" is n_known / n_new, the numbers of classes in the two parts of ``targets`` over
    all ranks. Returns ``None`` where all weights are 1.
    """
    if not 0 <= replay <= samples:
        raise ValueError(f"replay={replay!r} of OCAR must lie between 0 and the {samples} samples of the batch")
    if replay_weight == "class_ratio":
        if targets is None or targets.dim() != 1:
            raise ValueError(
                "replay_weight='class_ratio' of OCAR counts labels, one a sample: pass targets to observe()"
            )
        labels = targets.tolist()
        gathered = ranks.gather_objects(lambda: (labels[samples - replay :], labels[: samples - replay]))
        known, new = (len({label for rank in gathered for label in rank[part]}) for part in (0, 1))
        replay_weight = known / new if known and new else 1.0
    weight = 1.0 if replay_weight == "one" else float(replay_weight)
    if weight == 1.0 or not replay:
        return None
    weights = torch.ones(samples)
    weights[samples - replay :] = weight
    return weights


class OCAR(Optimizer):
    r"""Natural-gradient descent with a metric measured on the batch it trains on, replay included.

    .. math::
        [\Delta W|\Delta b] = -\eta\,(G + \tfrac{\sqrt\tau}{\pi} I)^{-1} [\partial W|\partial b]
        (A + \pi\sqrt\tau\, I)^{-1}

    A and G are the Kronecker factors (:mod:`tmln.curvature.kfac`) of each Linear, Conv1d and Conv2d
    layer, averaged over time; every other parameter takes a plain SGD step. Flat directions move at
    lr/damping, the other parameters at lr. Pass it the batch before the step:

    >>> model, x, y = nn.Linear(3, 2), torch.randn(8, 3), torch.zeros(8, dtype=torch.long)
    >>> optimizer = OCAR(model, lr=0.01)
    >>> optimizer.observe(x, replay=4)  # the last four samples come from memory
    True
    >>> nn.functional.cross_entropy(model(x), y).backward()
    >>> optimizer.step()

    Args:
        model: the model.
        lr: eta.
        damping: tau; inverses follow it whenever factors are updated.
        ema: share of the new in running factors.
        update_every: steps between updates, which cost a forward and a backward pass.
        fisher: ``"mc"`` (labels drawn from the model), ``"exact"`` (all labels, a backward pass
            each) or ``"empirical"`` (the given targets).
        damping_increment: growth of tau in each step.
        damping_init: ``"lr"`` starts tau at the learning rate, as the authors' code.
        replay_weight: weight of replayed samples in G: "one", "class_ratio" (known over new
            classes) or a number.
        momentum: as in SGD, applied to the natural gradient.
        seed: seed of the drawn labels.
        group: the processes whose samples count, as in :class:`~tmln.curvature.kfac.KFAC`.
        log_likelihood: what the outputs are ("tokens", ...), as in :func:`tmln.diagonal_fisher`.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float = 0.01,
        damping: float = 0.1,
        ema: float = 0.14,
        update_every: int = 10,
        fisher: str = "mc",
        *,
        damping_increment: float = 0.0,
        damping_init: str | None = None,
        replay_weight: float | str = "one",
        momentum: float = 0.0,
        seed: int = 0,
        group: Group = None,
        log_likelihood: str | LogLikelihood | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"OCAR needs the model itself, not {type(model).__name__}: it observes its layers")
        check_above("damping", damping, 0.0)
        check_at_least("damping_increment", damping_increment, 0.0)
        check_at_least("update_every", update_every, 1)
        if damping_init not in (None, "lr"):
            raise ValueError(f"damping_init must be None or 'lr', got {damping_init!r}")
        _check_replay_weight(replay_weight)
        check_fraction("momentum", momentum)
        self.momentum = momentum
        self.damping_increment = damping_increment
        self.update_every = update_every
        self.replay_weight = replay_weight
        self.kfac = KFAC(model, ema=ema, fisher=fisher, seed=seed, group=group, log_likelihood=log_likelihood)
        self._first_damping = None if damping_init == "lr" else damping
        self._steps = 0
        self._last_update = 0
        super().__init__(model.parameters(), {"lr": lr})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group as ``torch.optim`` does; parameters without factors take plain SGD steps."""
        check_at_least("lr", param_group.get("lr", self.defaults["lr"]), 0.0)
        super().add_param_group(param_group)

    @property
    def damping(self) -> float:
        """Return the current tau."""
        group = self.param_groups[0]  # a schedule multiplies the first rate
        first = group.get("initial_lr", group["lr"]) if self._first_damping is None else self._first_damping
        return float(first) + self.damping_increment * self._steps

    def observe(
        self,
        inputs: Inputs,
        targets: Tensor | None = None,
        *,
        replay: int = 0,
        weights: Tensor | None = None,
        replay_weight: float | str | None = None,
    ) -> bool:
        """Measure the metric on this batch if that is due, and return whether it was.

        ``inputs`` are a tensor or a mapping of the model's arguments. ``weights`` [N] replaces the
        weights that ``replay`` and ``replay_weight`` imply.
        """
        due = not self.kfac.inverses or self._steps - self._last_update >= self.update_every
        if due:
            self.refresh(inputs, targets, replay=replay, weights=weights, replay_weight=replay_weight)
        return due

    def refresh(
        self,
        inputs: Inputs,
        targets: Tensor | None = None,
        *,
        replay: int = 0,
        weights: Tensor | None = None,
        replay_weight: float | str | None = None,
    ) -> None:
        """Measure the metric as :meth:`observe`, due or not."""
        chosen = self.replay_weight if replay_weight is None else replay_weight
        _check_replay_weight(chosen)
        implied = sample_weights(to_batch(inputs).size, replay, chosen, targets, ranks_of(self.kfac.group))
        self.kfac.update(inputs, targets=targets, weights=implied if weights is None else weights)
        if self._first_damping is None:
            self._first_damping = self.damping - self.damping_increment * self._steps
        self.kfac.invert(self.damping)
        self._last_update = self._steps

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Step by the natural gradient in layers with factors, by SGD elsewhere."""
        if not self.kfac.inverses:
            raise RuntimeError("OCAR has no metric yet; call optimizer.observe(inputs) before optimizer.step()")
        loss = begin_step(self, closure, self.kfac.model)
        directions = self.kfac.precondition()
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            for p in moved:
                check_gradient(p, "OCAR")
            if moved:
                towards = [directions.get(p, p.grad) for p in moved]
                towards = self._accumulate(moved, towards) if self.momentum else towards
                torch._foreach_add_(moved, towards, alpha=-float(group["lr"]))
        self._steps += 1
        return loss

    def _accumulate(self, params: list[nn.Parameter], directions: list[Tensor]) -> list[Tensor]:
        """Update and return the velocities v <- mu*v + direction."""
        for p, direction in zip(params, directions, strict=True):
            velocity = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
            velocity.mul_(self.momentum).add_(direction)
        return [self.state[p]["momentum_buffer"] for p in params]

    def replace(self, old: Tensor, new: Tensor) -> None:
        """Put ``new``, with more rows, in place of ``old``; the layer's G grows with zeros.

        Put the new layer into the model first.
        """
        check_replacement(old, new)
        check_in_model(self.kfac.model, new)
        replace_parameter(self, old, new)
        self.kfac.resize()

    def state_dict(self) -> dict[str, Any]:
        """Return the state with ``"curvature"``: factors, generator, damping and counters."""
        curvature = {
            **self.kfac.state_dict(),
            "steps": self._steps,
            "last_update": self._last_update,
            "first_damping": self._first_damping,
        }
        return {**super().state_dict(), "curvature": curvature}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly where ``state_dict`` was taken."""
        if "curvature" not in state_dict:
            raise ValueError("the state has no entry 'curvature', so it is not OCAR's; load OCAR.state_dict()'s")
        curvature = state_dict["curvature"]
        self.kfac.load_state_dict(curvature)
        super().load_state_dict(state_dict)
        self._steps = curvature["steps"]
        self._last_update = curvature["last_update"]
        self._first_damping = curvature["first_damping"]

    def __getstate__(self) -> dict[str, Any]:
        own = (
            "momentum",
            "damping_increment",
            "update_every",
            "replay_weight",
            "kfac",
            "_first_damping",
            "_steps",
            "_last_update",
        )
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in own}}


def _check_replay_weight(replay_weight: float | str) -> None:
    if isinstance(replay_weight, str):
        check_choice("replay_weight", replay_weight, REPLAY_WEIGHTS)
    else:
        check_at_least("replay_weight", replay_weight, 0.0)
