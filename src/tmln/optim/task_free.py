"""Boundaries where nobody says where tasks end: every so many steps, or when the loss says that data have changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol

from torch import Tensor, nn
from torch.optim import Optimizer

from tmln.curvature.fisher import diagonal_fisher
from tmln.optim.boundary import Consolidation
from tmln.optim.checks import check_at_least, check_choice
from tmln.optim.drift import Drift
from tmln.optim.growth import find_models
from tmln.optim.tmln import TMLN
from tmln.optim.tmln_kfac import TMLNKFAC


class Memory(Protocol):
    """What boundaries ask of a memory, such as :class:`tmln.Reservoir`."""

    def __len__(self) -> int: ...

    def batches(self, size: int) -> Iterable[Any]: ...


class Boundaries:
    """Consolidates an optimizer by itself, on the memory, when a boundary is due.

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
        every: steps from one boundary to the next; or
        on: ``"drift"``: where the losses given to :meth:`step` have risen (:class:`tmln.optim.Drift`, which has its
            false-alarm rate: at most one in ``alarm_every`` steps while nothing changes).
        model: whose F is measured; unless given, the one that the optimizer's parameters are in.
        fisher: further arguments of :func:`tmln.diagonal_fisher`, such as ``log_likelihood``.

    Give the optimizer a ``decay`` below 1: S-bar would otherwise grow with the number of boundaries.
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

    def step(self, loss: float | Tensor | None = None) -> Consolidation | None:
        """After each step of the optimizer, on drift with its new samples' loss; what a boundary found, if one came."""
        self.steps += 1
        if self.drift is None:
            due = self.steps % self.every == 0 if self.every else False
        elif loss is None:
            raise TypeError("on='drift' goes by the loss: boundaries.step(loss), that of the step's new samples")
        else:
            due = self.drift(float(loss.detach() if isinstance(loss, Tensor) else loss))
        return self.consolidate() if due else None

    def consolidate(self) -> Consolidation:
        """A boundary here and now."""
        found = self._crossed()
        self.count += 1
        return found

    def _crossed(self) -> Consolidation:
        measured = any(group["geometry"] != "euclidean" for group in self.optimizer.param_groups)
        if not measured:
            return self.optimizer.consolidate()
        if not len(self.memory):
            raise RuntimeError("a boundary is due, and the memory is empty: memory.add(...) before boundaries.step()")
        if self.model is None:
            self.model = self._found()
        fisher = diagonal_fisher(self.model, self.memory.batches(self.batch_size), progress=False, **self.fisher)
        if isinstance(self.optimizer, TMLNKFAC) and self.optimizer.factors == "boundary":
            return self.optimizer.consolidate(fisher, self.memory.batches(self.batch_size))
        return self.optimizer.consolidate(fisher)

    def _found(self) -> nn.Module:
        """The outermost module that has the optimizer's parameters."""
        found = find_models(p for group in self.optimizer.param_groups for p in group["params"])
        if len(found) != 1:
            names = ", ".join(type(module).__name__ for module in found) or "none"
            raise ValueError(
                f"the optimizer's parameters are in more than one model, or in none ({names}): say model=..."
            )
        return found[0]

    def state_dict(self) -> dict[str, Any]:
        """Where it is between boundaries; optimizer and memory have states of their own."""
        drift = None if self.drift is None else self.drift.state_dict()
        return {"steps": self.steps, "count": self.count, "drift": drift}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        if (state["drift"] is None) != (self.drift is None):
            raise ValueError("the state is of boundaries that come otherwise: one every=N, the other on='drift'")
        self.steps, self.count = state["steps"], state["count"]
        if self.drift is not None:
            self.drift.load_state_dict(state["drift"])
