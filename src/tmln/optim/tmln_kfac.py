"""TMLN on Kronecker factors: K-FAC in place of the diagonal, under the same trajectory shield."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from torch import Tensor, nn

from tmln.curvature.kfac import KFAC
from tmln.curvature.kfac_factors import Inputs, to_batch
from tmln.curvature.likelihoods import LogLikelihood
from tmln.distributed.process_group import Group, ranks_of
from tmln.optim.boundary import Consolidation
from tmln.optim.checks import check_at_least, check_choice
from tmln.optim.ocar import sample_weights
from tmln.optim.state import check_in_model
from tmln.optim.tmln import TMLN
from tmln.optim.update import Natural, current_preconditioner, flush_path, state_of

FACTORS = ("boundary", "running")
Batches = Iterable[Any]  # (inputs, targets), or mappings


class TMLNKFAC(TMLN):
    r"""TMLN with the K-FAC metric K, damped by lambda, in place of F + lambda.

    .. math::
        [\Delta W|\Delta b] = -\eta \, D^{-1} \odot K^{-1} [\partial W|\partial b], \quad
        D = 1 + \gamma \bar S/\lambda \\
        K^{-1} X = (G + \tfrac{\sqrt\lambda}{\pi} I)^{-1} X (A + \pi\sqrt\lambda\, I)^{-1}

    or, with ``symmetric=True``, :math:`-\eta D^{-1/2} \odot K^{-1} (D^{-1/2} \odot g)`, which
    always descends; the first form can point uphill where S-bar differs much between the weights
    of a layer. In a flat direction (A = G = 0) both are TMLN's g / (lambda + gamma*S-bar).
    Parameters without factors (batch norm, grouped convolutions, ...; see
    :func:`~tmln.curvature.kfac_layers.kfac_layers`) take TMLN's step by the diagonal. Score,
    S-bar and anchor are TMLN's; F, the diagonal, normalises the score, and :meth:`protection` is
    by it.

    With ``factors="boundary"`` they are measured on the memory at task boundaries in eval mode and
    frozen between them, as F in Algorithm 1; so the first task is SGD at lr/damping.

    >>> import torch
    >>> model, x, y = nn.Linear(4, 2), torch.randn(8, 4), torch.randint(2, (8,))
    >>> optimizer = TMLNKFAC(model, lr=0.01)
    >>> nn.functional.cross_entropy(model(x), y).backward()
    >>> optimizer.step()
    >>> from tmln.curvature import diagonal_fisher
    >>> memory = [(x, y)]
    >>> _ = optimizer.consolidate(diagonal_fisher(model, memory), memory)

    With ``factors="running"`` they are running means over the batches trained on, replay included:
    call :meth:`observe` before each step, as for :class:`~tmln.optim.OCAR`, and
    ``consolidate(fisher)`` at boundaries.

    Args:
        model: the model; its parameters are one group, with one damping for all layers.
        lr: eta.
        damping: lambda > 0.
        trajectory: gamma.
        factors: ``"boundary"`` or ``"running"``.
        labels: the labels that G is measured with: ``"mc"`` (drawn from the model), ``"exact"``
            (all of them, a backward pass each) or ``"empirical"`` (the given ones).
        ema: share of the new in running factors.
        update_every: steps between updates of running factors.
        symmetric: apply the shield on both sides of the factors.
        seed: seed of the drawn labels.
        group: the processes whose samples count, as in :class:`~tmln.curvature.kfac.KFAC`.
        log_likelihood: what the outputs are, as in :func:`tmln.diagonal_fisher`.
        options: further arguments of :class:`~tmln.optim.TMLN`. There is no proximal form, whose
            lambda is 1/eta: factors would be inverted again whenever eta changes.
    """

    _frames = 4

    def __init__(
        self,
        model: nn.Module,
        lr: float = 0.01,
        damping: float = 0.1,
        trajectory: float = 1.0,
        *,
        factors: Literal["boundary", "running"] = "boundary",
        labels: Literal["mc", "exact", "empirical"] = "mc",
        ema: float = 0.14,
        update_every: int = 10,
        symmetric: bool = False,
        seed: int = 0,
        group: Group = None,
        log_likelihood: str | LogLikelihood | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"TMLNKFAC needs the model itself, not {type(model).__name__}: it measures its layers")
        for name in ("geometry", "form"):
            if name in options:
                raise TypeError(f"TMLNKFAC takes no {name}: its geometry is 'kfac', its form 'scaled'; TMLN has others")
        check_choice("factors", factors, FACTORS)
        check_at_least("update_every", update_every, 1)
        self.factors, self.update_every, self.symmetric = factors, update_every, symmetric
        self.kfac = KFAC(model, ema=ema, fisher=labels, seed=seed, group=group, log_likelihood=log_likelihood)
        self._steps = self._last_update = 0
        super().__init__(model.named_parameters(), lr, damping, trajectory, geometry="kfac", **options)

    def _check_geometry(self, group: dict[str, Any]) -> None:
        if group["geometry"] == "kfac" and group["form"] != "scaled":
            raise ValueError(f"geometry 'kfac' has the form 'scaled' only, got {group['form']!r}")
        if group["geometry"] == "kfac" and group["base"] != "sgd":
            raise ValueError(f"geometry 'kfac' has a direction of its own; set base={group['base']!r} to 'sgd'")

    def observe(
        self, inputs: Inputs, targets: Tensor | None = None, *, replay: int = 0, replay_weight: float | str = "one"
    ) -> bool:
        """Measure running factors on this batch if that is due, and return whether it was.

        The last ``replay`` samples are from memory and have weight ``replay_weight`` in G. Does
        nothing for ``factors="boundary"``.
        """
        due = not self.kfac.inverses or self._steps - self._last_update >= self.update_every
        if self.factors != "running" or not due:
            return False
        weights = sample_weights(to_batch(inputs).size, replay, replay_weight, targets, ranks_of(self.kfac.group))
        self.kfac.update(inputs, targets=targets, weights=weights)
        self.kfac.invert(self._damping)
        self._last_update = self._steps
        return True

    @property
    def _damping(self) -> float:
        return float(self.param_groups[0]["damping"])

    def _natural(self, gradients: Mapping[Tensor, Tensor]) -> Natural | None:
        if not self.kfac.inverses and self.factors == "running":
            raise RuntimeError("no running factors yet; call optimizer.observe(inputs) before optimizer.step()")
        if self.kfac.inverses and self.kfac.inverse_damping != self._damping:
            self.kfac.invert(self._damping)
        factored = self.kfac.covered_parameters(gradients)
        for group in self.param_groups:
            for p in group["params"]:
                if p in gradients:
                    self._set_factored(state_of(self, p, group), group, p in factored)
        self._steps += 1
        return self._apply_inverses if factored else None

    def _set_factored(self, state: dict[str, Any], group: dict[str, Any], factored: bool) -> None:
        """Change P of a parameter that gets factors, or loses them."""
        if bool(state.get("factored")) != factored:
            if state["raw_path"].any():
                flush_path(state, group)
            state.pop("preconditioner", None)
            state["factored"] = factored

    def _apply_inverses(self, params: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """Return K^-1 g, or D^1/2 K^-1 D^-1/2 g if symmetric; the step multiplies by D^-1."""
        given = dict(zip(params, gradients, strict=True))
        roots: dict[Tensor, Tensor] = {}
        if self.symmetric:
            for p in self.kfac.covered_parameters(given):
                roots[p] = current_preconditioner(self.state[p], self.param_groups[0]).sqrt()
                given[p] = given[p] * roots[p]
        directions = self.kfac.precondition(given)
        for p, root in roots.items():
            directions[p] = directions[p] / root
        return [directions.get(p, g) for p, g in zip(params, gradients, strict=True)]

    def consolidate(
        self,
        fisher: Mapping[Any, Tensor] | Sequence[Tensor] | None = None,
        batches: Batches | None = None,
        *,
        group: Group = None,
    ) -> Consolidation:
        """End a task as :meth:`TMLN.consolidate`, and measure factors on ``batches``.

        ``batches`` are (inputs, targets) of the memory; None where factors are running. ``group``
        is the constructor's unless given.
        """
        with self._measure_factors(batches):
            return super().consolidate(fisher, group=self.kfac.group if group is None else group)

    def refresh(
        self,
        fisher: Mapping[Any, Tensor] | Sequence[Tensor],
        batches: Batches | None = None,
        *,
        group: Group = None,
    ) -> None:
        """Set a new F and new factors in the middle of a task; the path so far is kept."""
        with self._measure_factors(batches):
            super().refresh(fisher, group=self.kfac.group if group is None else group)

    @contextmanager
    def _measure_factors(self, batches: Batches | None) -> Iterator[None]:
        """Measure new factors before the block, and use them after it unless it raises."""
        if self.factors == "running":
            if batches is not None:
                raise TypeError("running factors are measured by observe(): leave batches out")
            yield
            return
        if batches is None:
            raise TypeError(
                "factors='boundary' are measured on your memory: "
                "optimizer.consolidate(tmln.diagonal_fisher(model, batches), batches), or use factors='running'"
            )
        generator_state = self.kfac.generator.get_state()
        try:
            measured = self.kfac.measure(batches)
            yield
        except BaseException:
            self.kfac.generator.set_state(generator_state)
            raise
        self.kfac.set_factors(measured)
        self.kfac.invert(self._damping)

    def replace(self, old: Tensor, new: Tensor) -> None:
        """Replace as :meth:`TMLN.replace`; the layer's factors grow with zeros.

        Put the new layer into the model first.
        """
        check_in_model(self.kfac.model, new)
        super().replace(old, new)
        self.kfac.resize()

    def state_dict(self) -> dict[str, Any]:
        """Return TMLN's state with ``"curvature"``: the factors, their generator and counters."""
        counters = {"steps": self._steps, "last_update": self._last_update}
        return {**super().state_dict(), "curvature": {**self.kfac.state_dict(), **counters}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly where ``state_dict`` was taken."""
        if "curvature" not in state_dict:
            raise ValueError("the state has no entry 'curvature', so it is no TMLNKFAC's; load TMLNKFAC.state_dict()'s")
        self.kfac.load_state_dict(state_dict["curvature"])
        super().load_state_dict(state_dict)
        self._steps, self._last_update = (state_dict["curvature"][name] for name in ("steps", "last_update"))

    def __getstate__(self) -> dict[str, Any]:
        own = ("factors", "update_every", "symmetric", "kfac", "_steps", "_last_update")
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in own}}
