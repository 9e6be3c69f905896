"""The loss of one batch and its gradient, as often as a step asks (tmln/methods/interfaces.py says what counts)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tmln.curvature.preserve_state import preserve_buffers, preserve_model
from tmln.learner.diverged import diverged
from tmln.methods import Batch, TaskContext

if TYPE_CHECKING:
    from tmln.learner.learner import Learner


class BatchClosure:
    """Forward pass, loss, penalty and backward pass of one batch; the first call is the one that counts.

    ``value`` and ``output`` are the first call's; ``tracks_path``: the step needs ``after_update``.
    """

    def __init__(self, learner: Learner, batch: Batch, context: TaskContext, epoch: int, number: int) -> None:
        self.learner, self.batch, self.context = learner, batch, context
        self.epoch, self.number = epoch, number
        self.tracks_path = learner.step.tracks_path and (
            learner.penalty.modifies_gradient or learner.step.modifies_gradient
        )
        self.value = math.nan
        self.output: Tensor | None = None
        self.device = batch.x.device
        self.random = random_states(self.device)

    def __call__(self) -> float:
        if self.output is None:
            self.value, self.output = self._evaluate(first=True)
            return self.value
        with once_more(self.learner.model, self.random, self.device):
            return self._evaluate(first=False)[0]

    def _evaluate(self, first: bool) -> tuple[float, Tensor]:
        learner, batch = self.learner, self.batch
        step, penalty, look = learner.step, learner.penalty, first and self.tracks_path
        try:
            loss, output = learner.replay.loss(learner.forward, batch)
        except (IndexError, ValueError):
            explain(learner.model, batch, learner.batch_size)
            raise
        extra = penalty.loss(learner.scored, batch, output)
        total = loss if extra is None else loss + extra
        value = float(total.detach())
        if not math.isfinite(value):
            where = f"task {self.context.index + 1}, epoch {self.epoch + 1}, step {self.number + 1}"
            raise diverged(value, batch.x, where, learner.lr, step)
        parameters = [p for group in step.optimizer.param_groups for p in group["params"]]
        for p in parameters:
            p.grad = None  # zero_grad() without its bookkeeping, which a small network's step would notice
        if look and extra is not None:
            learner.backward(loss, parameters, retain_graph=True)
            step.after_backward()
            learner.backward(extra, parameters)
        else:
            learner.backward(total, parameters)
            if look:
                step.after_backward()
        if first:
            penalty.after_backward()
        penalty.add_gradient()
        return value, output


@contextmanager
def once_more(model: nn.Module, random: list[Tensor], device: torch.device) -> Iterator[None]:
    """With the random numbers of the first call; statistics and random numbers come back as they were."""
    cuda = [device] if device.type == "cuda" else []
    with preserve_buffers(model), torch.random.fork_rng(cuda):
        torch.set_rng_state(random[0])
        if cuda:
            torch.cuda.set_rng_state(random[1], device)
        yield


def random_states(device: torch.device) -> list[Tensor]:
    """Of torch's own generators, that of the CPU first."""
    cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *cuda]


@torch.no_grad()
def explain(model: nn.Module, batch: Batch, batch_size: int) -> None:
    """Raise in plain words what torch said of this batch in its own, if it is a usual mistake."""
    if len(batch.y) == 1 and any(isinstance(module, _BatchNorm) for module in model.modules()):
        raise ValueError(
            f"a batch of one sample is left over, by which BatchNorm cannot normalise: choose another batch_size "
            f"than {batch_size}, or leave a sample out"
        )
    with preserve_model(model, training=False):
        outputs = model(batch.x[:1]).shape[1]
    if (label := int(batch.y.max())) >= outputs:
        raise ValueError(f"label {label}, but the model has {outputs} outputs: give its head one for every class")
