"""A pass over a model that leaves no trace: flags, gradients, random state and buffers come back as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import nn

_ASIDE = ContextVar("aside", default=False)


def is_measuring() -> bool:
    """Whether what a model is passed now is passed within :func:`untouched`."""
    return _ASIDE.get()


@contextmanager
def preserve_buffers(model: nn.Module) -> Iterator[None]:
    """Running statistics and other buffers are, on leaving, as they were."""
    buffers = [
        (module, name, buffer, None if buffer is None else buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for module, name, buffer, value in buffers:
                module._buffers[name] = buffer
                if buffer is not None and value is not None and not torch.equal(buffer, value):
                    buffer.copy_(value)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """As ``model.eval()`` makes it, with all that a model of the user's does then; on leaving, in its modes again."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def preserve_model(model: nn.Module, *, training: bool | None = None) -> Iterator[None]:
    """Within the block do as you like with ``model``; on leaving, also by an exception, all is restored.

    ``training`` is every module's mode for the duration, without a call of its ``train``; ``None`` leaves modes alone.
    ``.grad`` is ``None`` inside the block. Whoever counts passes does not count these: see :func:`leaves_no_trace`.
    """
    modes = [(module, module.training) for module in model.modules()]
    parameters = [(p, p.requires_grad, p.grad) for p in model.parameters()]
    devices = {p.device for p, _, _ in parameters if p.device.type == "cuda"}
    with preserve_buffers(model), torch.random.fork_rng(devices):
        aside = _ASIDE.set(True)
        try:
            for p, _, _ in parameters:
                p.grad = None
            for module, mode in modes:
                module.training = mode if training is None else training
            yield
        finally:
            _ASIDE.reset(aside)
            for module, mode in modes:
                module.training = mode
            for p, requires_grad, grad in parameters:
                p.requires_grad_(requires_grad)
                p.grad = grad
