"""The memory, the boundaries and the optimizer's state from task to task, whoever owns the loop."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from tmln.curvature import diagonal_fisher
from tmln.curvature.likelihoods import LogLikelihood
from tmln.integrations.mixing import start_of
from tmln.methods.replay import Reservoir

OWN = ("metric", "stretch", "looked")  # of a parameter group of TMLN: notes on the path, not options of the user's


def unwrapped(optimizer: Any) -> Any:
    """The optimizer itself, inside the wrappers of Accelerate, Fabric and Lightning, which hide its methods.

    >>> import torch
    >>> inner = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    >>> unwrapped(inner) is inner
    True
    """
    while isinstance(getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = optimizer.optimizer
    return optimizer


def consolidates(optimizer: Any) -> bool:
    """Whether it has task boundaries, as TMLN does."""
    return callable(getattr(optimizer, "consolidate", None))


def carried(optimizer: Optimizer, state: Mapping[str, Any], whom: str) -> None:
    """Give a fresh optimizer the state of the one that has consolidated; its options (rates, damping) stay its own."""
    if not consolidates(optimizer):
        raise ValueError(
            f"{whom} has consolidated, and is now given {type(optimizer).__name__}, which cannot carry the shield; "
            "give it a TMLN again, or start with a new callback"
        )
    fresh, saved = optimizer.state_dict(), state
    sizes = [[len(group["params"]) for group in groups] for groups in (fresh["param_groups"], saved["param_groups"])]
    shapes = {index: p.shape for index, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
    odd = [k for k, found in saved["state"].items() if "anchor" in found and found["anchor"].shape != shapes.get(k)]
    if sizes[0] != sizes[1] or odd:
        raise ValueError(
            f"{whom} has consolidated an optimizer of {sizes[1]} parameters a group, and is now given a fresh one of "
            f"{sizes[0]}{f', in which parameter {odd[0]} has another shape' if odd else ''}: the shield would be lost. "
            "Give it the same model and groups, or start with a new callback"
        )
    groups = [
        {**mine, "params": theirs["params"], **{key: theirs[key] for key in OWN if key in theirs}}
        for mine, theirs in zip(fresh["param_groups"], saved["param_groups"], strict=True)
    ]
    optimizer.load_state_dict({"state": saved["state"], "param_groups": groups})


class Keeper:
    """The memory and the boundaries of a model that somebody else's loop trains.

    ``memory`` is what is drawn from; ``coming`` has the task's own samples besides, and takes over at the boundary, so
    that a task replays those before it, as in :class:`tmln.Learner`.
    """

    def __init__(
        self,
        memory: Reservoir,
        log_likelihood: str | LogLikelihood | None = None,
        batch_size: int = 128,
    ) -> None:
        self.memory = memory
        self.coming: Reservoir | None = None
        self.log_likelihood, self.batch_size = log_likelihood, batch_size
        self.boundaries = 0
        self.optimizer_state: dict[str, Any] | None = None  # as of the last boundary, for an optimizer made anew

    def rehearse(self, model: nn.Module, batch: Any) -> None:
        """The Fisher of two samples: what it would refuse at the task's end is refused before the first step."""
        diagonal_fisher(model, [start_of(batch, 2)], log_likelihood=self.log_likelihood, progress=False)

    def offer(self, batch: Any) -> None:
        """Samples of the task, each once; what does not fit to those of before is refused."""
        if self.coming is None:
            self.coming = copy.deepcopy(self.memory)
        self.coming.add(batch)

    def boundary(self, model: nn.Module, optimizer: Any) -> None:
        """The memory takes the task in; then, where the optimizer has boundaries, score, shield and metric."""
        if self.coming is not None:
            self.memory, self.coming = self.coming, None
        if consolidates(optimizer):
            euclidean = all(group.get("geometry") == "euclidean" for group in optimizer.param_groups)
            batches = self.memory.batches(self.batch_size)
            fisher = None if euclidean else diagonal_fisher(model, batches, log_likelihood=self.log_likelihood)
            optimizer.consolidate(fisher)
            self.boundaries += 1

    def note(self, optimizer: Any) -> None:
        """At the end of a training: what the next one's optimizer has to begin with."""
        if consolidates(optimizer) and self.boundaries:
            self.optimizer_state = copy.deepcopy(optimizer.state_dict())

    def hand_over(self, optimizer: Any, whom: str) -> None:
        """At the beginning of a training: a fresh optimizer gets the state, one that has it is left alone."""
        if self.optimizer_state is None:
            if self.boundaries:
                raise ValueError(
                    f"{whom} has consolidated {self.boundaries} times, and the state of the optimizer that did is not "
                    "at hand: the shield would be lost. Restore it from what was saved after that training"
                )
            return
        if not any(optimizer.state.values()):
            carried(optimizer, self.optimizer_state, whom)

    def state_dict(self) -> dict[str, Any]:
        coming = None if self.coming is None else self.coming.state_dict()
        return {"memory": self.memory.state_dict(), "coming": coming, "boundaries": self.boundaries}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The optimizer's state is in the checkpoint beside it."""
        self.memory.load_state_dict(state["memory"])
        self.coming = None
        if state["coming"] is not None:
            self.coming = copy.deepcopy(self.memory)
            self.coming.load_state_dict(state["coming"])
        self.boundaries, self.optimizer_state = state["boundaries"], None
