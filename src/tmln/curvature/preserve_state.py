"""Passes that leave a model as it was: flags, gradients, random state and buffers are restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import nn

_ASIDE = ContextVar("aside", default=False)


def is_measuring() -> bool:
    """Return whether the current code runs within :func:`preserve_model`."""
    return _ASIDE.get()


@contextmanager
def preserve_buffers(model: nn.Module) -> Iterator[None]:
    """Restore running statistics and other buffers on leaving."""
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
    """Call ``model.eval()``, including overrides of it; restore modes on leaving."""
    with preserve_modes(model):
        model.eval()
        yield


@contextmanager
def preserve_modes(model: nn.Module) -> Iterator[None]:
    """Restore which modules are in training mode on leaving."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def preserve_model(model: nn.Module, *, training: bool | None = None) -> Iterator[None]:
    """Restore the model on leaving, also after an exception.

    Within the block ``.grad`` is ``None``, and ``training``, if given, is the mode of every module,
    without a call of its ``train``. Passes in it are not counted, see :func:`is_measuring`.
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
