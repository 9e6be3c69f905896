"""Features: the input of the layer that gives the model's output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.suggest import did_you_mean


@contextmanager
def replace_layer(model: nn.Module, layer: nn.Module, made: nn.Module) -> Iterator[None]:
    """Put ``made`` in the place of a layer of the model within the block."""
    name = next(name for name, module in model.named_modules() if module is layer)
    model.set_submodule(name, made)
    try:
        yield
    finally:
        model.set_submodule(name, layer)


class Features:
    """Finds the last layer of a model, and its input.

    ``name`` is the layer's, whole or the end of it (``fc`` of ``model.fc``); None: the last
    ``nn.Linear`` whose output is the model's. ``setting`` is what an error tells to set;
    ``linear``: the layer's rows are needed. A layer that was replaced since, as when a head grows,
    is found anew.
    """

    def __init__(self, name: str | None, setting: str, linear: bool = False) -> None:
        self.name, self.setting, self.linear = name, setting, linear
        self._layer: nn.Module | None = None

    def find(self, model: nn.Module, x: Tensor) -> nn.Module:
        """Return the layer, found by a forward pass that changes nothing."""
        self._layer = None
        layer = self._find_by_name(model) if self.name is not None else self._find_by_output(model, x)
        if self.linear and not isinstance(layer, nn.Linear):
            raise ValueError(
                f"{self.setting} = {self.name!r} is a {type(layer).__name__}: its rows are to be changed, so name the "
                "nn.Linear that gives the output"
            )
        self._layer = layer
        return layer

    def get_layer(self, model: nn.Module, x: Tensor) -> nn.Module:
        """Return the layer as found before, if the model still has it."""
        known = self._layer
        return known if known is not None and any(m is known for m in model.modules()) else self.find(model, x[:2])

    def extract(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output and the features ``[n, d]``, in one pass."""
        layer, seen = self.get_layer(model, x), []
        handle = layer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        try:
            output: Tensor = model(x)
        finally:
            handle.remove()
        if not seen or len(seen[-1]) != len(x):
            raise ValueError(
                f"{self.setting} = {self.name!r}: the layer does not process every sample exactly once; name another"
            )
        return output, seen[-1].flatten(1)

    def _find_by_name(self, model: nn.Module) -> nn.Module:
        """Return the layer by its name or the end of it: wrappers of a model add prefixes."""
        assert self.name is not None
        every = {name: module for name, module in model.named_modules() if name}
        ends = [name for name in every if f".{name}".endswith(f".{self.name}")]
        if self.name in every or len(ends) == 1:
            found: nn.Module = every[self.name if self.name in every else ends[0]]
            return found
        hint = f"; there are {', '.join(ends)}" if ends else did_you_mean(self.name, every)
        raise ValueError(
            f"{self.setting} = {self.name!r} names no layer of the model{hint} (layers: {', '.join(every)})"
        )

    @torch.no_grad()
    def _find_by_output(self, model: nn.Module, x: Tensor) -> nn.Module:
        outputs: list[tuple[nn.Module, Tensor]] = []
        layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        handles = [m.register_forward_hook(lambda module, _, out: outputs.append((module, out))) for m in layers]
        try:
            with preserve_model(model, training=False):
                output = model(x)
        finally:
            for handle in handles:
                handle.remove()
        is_open = output.isfinite() if isinstance(output, Tensor) else None  # a closed class has the logit -inf
        for module, out in reversed(outputs):
            if is_open is not None and out.shape == output.shape and torch.equal(out[is_open], output[is_open]):
                return module
        raise ValueError(
            f"the features of {type(getattr(model, 'model', model)).__name__} cannot be found: none of its "
            f"{len(layers)} nn.Linear gives its output; name the layer that they go into: {self.setting}=NAME"
        )
