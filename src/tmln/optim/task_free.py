"""Task boundaries where none are given: every N steps, or where the loss shows a change of data.

The change detector bets on conformal p-values with a mixture of powers, in a Shiryaev-Roberts
procedure (Vovk et al. 2021, Retrain or not retrain: conformal test martingales for change-point
detection).
"""

from __future__ import annotations

import math
import warnings
import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tmln.curvature.fisher import diagonal_fisher
from tmln.optim.boundary import Consolidation
from tmln.optim.checks import check_at_least, check_choice, find_models
from tmln.optim.tmln import TMLN
from tmln.optim.tmln_kfac import TMLNKFAC


def rank_p_value(loss: float, past: list[float], tie: float) -> float:
    """Return the share of the losses so far, this one included, that are at least as high.

    ``past`` is sorted. The number ``tie``, uniform in (0, 1), places the loss among its equals, so
    that p is uniform if all losses come from one distribution.

    >>> rank_p_value(5.0, [1.0, 2.0, 3.0], 0.5)
    0.125
    >>> rank_p_value(2.0, [1.0, 2.0, 3.0], 0.5)
    0.5
    """
    above = len(past) - bisect_right(past, loss)
    equal = len(past) - above - bisect_left(past, loss)
    return (above + tie * (equal + 1)) / (len(past) + 1)


def bet_on(p: float) -> float:
    """Return the payoff of p, the integral over kappa in (0, 1) of kappa*p^(kappa-1).

    It is (1 - p + p*ln p) / (p*ln^2 p), whose mean over uniform p is 1.
    """
    if p > 0.9999:
        return 0.5  # the limit at 1, where the formula is 0/0
    log = math.log(p)
    return (1.0 - p + p * log) / (p * log * log)


class Drift:
    """A test after every step whether the loss has risen, with a bounded rate of false alarms.

    Call it with the loss of every step's new samples; it returns True where they have become
    harder. R <- (1 + R) * bet_on(p), with p the rank of the loss in its window so far; an alarm
    comes where R >= ``alarm_every``. While the losses come from one distribution, R minus the
    number of steps is a martingale, so alarms are at least ``alarm_every`` steps apart on average.
    A falling loss, as in learning, gives no more alarms; losses that depend on each other may.

    The comparison starts again every ``window`` steps, so that high initial losses hide no rise.
    """

    def __init__(self, alarm_every: int = 1000, window: int = 200, seed: int = 0) -> None:
        check_at_least("alarm_every", alarm_every, 1)
        check_at_least("window", window, 2)
        self.alarm_every, self.window = alarm_every, window
        self.generator = torch.Generator().manual_seed(seed)
        self.past: list[float] = []
        self.evidence = 0.0

    def __call__(self, loss: float) -> bool:
        if not math.isfinite(loss):
            raise ValueError(f"the loss is {loss}, from which no drift can be detected; look at the batch, or lower lr")
        if len(self.past) == self.window:
            self.past = []
        tie = 1.0 - float(torch.rand((), dtype=torch.float64, generator=self.generator))
        self.evidence = (1.0 + self.evidence) * bet_on(rank_p_value(loss, self.past, tie))
        insort(self.past, loss)
        if self.evidence < self.alarm_every:
            return False
        self.past, self.evidence = [], 0.0
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the losses of the window, the evidence R, and the state of the generator."""
        return {"past": list(self.past), "evidence": self.evidence, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict``."""
        self.past, self.evidence = list(state["past"]), float(state["evidence"])
        self.generator.set_state(state["generator"].cpu())


class Memory(Protocol):
    """A replay memory as :class:`Boundaries` uses it, such as :class:`tmln.Reservoir`."""

    def __len__(self) -> int: ...

    def batches(self, size: int) -> Iterable[Any]: ...


class Boundaries:
    """Automatic task boundaries of a TMLN optimizer, measured on a replay memory.

    >>> import torch, tmln
    >>> model = torch.nn.Linear(3, 2)
    >>> optimizer, memory = tmln.TMLN(model.parameters(), decay=0.5), tmln.Reservoir(100)
    >>> boundaries = Boundaries(optimizer, memory, every=2)
    >>> x, y = torch.randn(8, 3), torch.randint(2, (8,))
    >>> for _ in range(4):
    ...     loss = torch.nn.functional.cross_entropy(model(x), y)
    ...     loss.backward()
    ...     optimizer.step()
    ...     memory.add(x, y)
    ...     _ = boundaries.step(loss)
    >>> boundaries.count
    2

    Args:
        optimizer: a :class:`tmln.TMLN`; give it a ``decay`` below 1, or S-bar grows with the number
            of boundaries.
        memory: the samples of which F is measured, such as a :class:`tmln.Reservoir`.
        every: steps from one boundary to the next; or
        on: ``"drift"``: where the losses given to :meth:`step` have risen
            (:class:`tmln.optim.Drift`).
        model: the model of which F is measured; found by the optimizer's parameters unless given.
        batch_size: samples in a pass over the memory.
        alarm_every: least mean number of steps between false alarms of ``"drift"``.
        seed: seed of the generator that places a loss among its equals.
        fisher: further arguments of :func:`tmln.diagonal_fisher`, such as ``log_likelihood``.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        memory: Memory,
        *,
        every: int | None = None,
        on: Literal["drift"] | None = None,
        model: nn.Module | None = None,
        batch_size: int = 256,
        alarm_every: int = 1000,
        seed: int = 0,
        **fisher: Any,
    ) -> None:
        while not isinstance(optimizer, TMLN) and isinstance(getattr(optimizer, "optimizer", None), Optimizer):
            optimizer = optimizer.optimizer  # type: ignore[attr-defined]  # as Accelerate wraps it
        if not isinstance(optimizer, TMLN):
            raise TypeError(
                f"Boundaries consolidate a tmln.TMLN; {type(optimizer).__name__} has nothing to consolidate"
            )
        if (every is None) == (on is None):
            raise ValueError(
                f"say when a boundary comes: every=N steps or on='drift', one of them; got {every=}, {on=}"
            )
        if every is not None:
            check_at_least("every", every, 1)
        if on is not None:
            check_choice("on", on, ("drift",))
        self.optimizer, self.memory, self.every, self.model = optimizer, memory, every, model
        self.batch_size, self.fisher = batch_size, fisher
        self.drift = Drift(alarm_every, seed=seed) if on == "drift" else None
        self.steps = self.count = 0
        self._last_words: dict[str, str] = {}  # what is said if this ends without a boundary
        if self.drift is not None:
            weakref.finalize(self, _warn_of_silence, self._last_words)

    def __repr__(self) -> str:
        when = "on='drift'" if self.drift is not None else f"every={self.every}"
        return f"Boundaries({when}: {self.count} in {self.steps} steps)"

    def step(self, loss: float | Tensor | None = None) -> Consolidation | None:
        """Count a step of the optimizer; return the result of a boundary if one was due.

        With ``on="drift"``, ``loss`` is that of the step's new samples.
        """
        self.steps += 1
        if self.drift is None:
            due = self.steps % self.every == 0 if self.every else False
        elif loss is None:
            raise TypeError("on='drift' goes by the loss: boundaries.step(loss), that of the step's new samples")
        else:
            due = self.drift(float(loss.detach() if isinstance(loss, Tensor) else loss))
        if not (due or self.count):
            self._last_words["silence"] = (
                f"Boundaries(on='drift') ended after {self.steps} steps without a boundary: nothing is protected. Give "
                "step() the loss of new samples alone (replay hides a change), lower alarm_every, or say every=N"
            )
        return self.consolidate() if due else None

    def consolidate(self) -> Consolidation:
        """Consolidate the optimizer on the memory now."""
        result = self._consolidate_optimizer()
        self.count += 1
        self._last_words.clear()
        return result

    def _consolidate_optimizer(self) -> Consolidation:
        if all(group["geometry"] == "euclidean" for group in self.optimizer.param_groups):
            return self.optimizer.consolidate()
        if not len(self.memory):
            raise RuntimeError("a boundary is due, and the memory is empty: memory.add(...) before boundaries.step()")
        if self.model is None:
            self.model = self._find_model()
        fisher = diagonal_fisher(self.model, self.memory.batches(self.batch_size), progress=False, **self.fisher)
        if isinstance(self.optimizer, TMLNKFAC) and self.optimizer.factors == "boundary":
            return self.optimizer.consolidate(fisher, self.memory.batches(self.batch_size))
        return self.optimizer.consolidate(fisher)

    def _find_model(self) -> nn.Module:
        found = find_models(p for group in self.optimizer.param_groups for p in group["params"])
        if len(found) != 1:
            names = ", ".join(type(module).__name__ for module in found) or "none"
            raise ValueError(
                f"the optimizer's parameters are in more than one model, or in none ({names}): say model=..."
            )
        return found[0]

    def state_dict(self) -> dict[str, Any]:
        """Return the counters and the detector's state; optimizer and memory have their own."""
        drift = None if self.drift is None else self.drift.state_dict()
        return {"steps": self.steps, "count": self.count, "drift": drift}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict``."""
        if (state["drift"] is None) != (self.drift is None):
            raise ValueError("the state is of boundaries that come otherwise: one every=N, the other on='drift'")
        self.steps, self.count = state["steps"], state["count"]
        if self.drift is not None:
            self.drift.load_state_dict(state["drift"])


def _warn_of_silence(words: Mapping[str, str]) -> None:
    for message in words.values():
        warnings.warn(message, UserWarning, stacklevel=2)
