"""A head that got more rows: what parts are told of it, and how state that they declare follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tmln.optim.growth import check_replacement, grow_tensor, has_parameter, replace_parameter


@dataclass(frozen=True, eq=False)
class Growth:
    """Which parameters took the place of which; under which names they are in the model; how many outputs there were
    and are. A state that is put back may have fewer: then it is cut."""

    parameters: Mapping[Tensor, Tensor]  # old -> new
    names: Mapping[str, Tensor]  # as in ``model.state_dict()`` -> new
    before: int
    after: int

    def swap(self, parameters: list[Tensor]) -> None:
        """In place: each that was replaced is the one that replaced it."""
        parameters[:] = [self.parameters.get(p, p) for p in parameters]

    def state(self, value: Any, aligned: Sequence[Tensor] = (), copy: bool = False) -> Any:
        """State that is told to be about parameters: a mapping from their names or themselves, or a list that is
        ``aligned`` with the parameters as they are now. New rows are zero; of copies of the weights, the weights."""
        if isinstance(value, Mapping):
            return {
                self.parameters.get(key, key) if isinstance(key, Tensor) else key: self._one(item, self._new(key), copy)
                for key, item in value.items()
            }
        if isinstance(value, list) and aligned and all(isinstance(item, Tensor) for item in value):
            replaced = set(map(id, self.parameters.values()))
            pairs = zip(value, aligned, strict=False)
            return [self._one(item, p if id(p) in replaced else None, copy) for item, p in pairs]
        return value

    def rows(self, value: Tensor) -> Tensor:
        """A tensor with a row for each output: zero for those that came."""
        made, kept = value.new_zeros(self.after, *value.shape[1:]), min(self.after, len(value))
        made[:kept] = value[:kept]
        return made

    def optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Whatever optimizer it is: by its own ``replace`` if it has one."""
        for old, new in self.parameters.items():
            if not has_parameter(optimizer, old):
                continue
            if hasattr(optimizer, "replace") and len(new) >= len(old):
                check_replacement(old, new)
                optimizer.replace(old, new)
            else:
                replace_parameter(optimizer, old, new)

    def _new(self, key: Any) -> Tensor | None:
        return self.parameters.get(key) if isinstance(key, Tensor) else self.names.get(key)

    def _one(self, value: Any, new: Tensor | None, copy: bool) -> Any:
        if new is None or not isinstance(value, Tensor) or value.shape[1:] != new.shape[1:]:
            return value
        return grow_tensor(value, new, copy)
