"""Whose tensor is it: a Fisher diagonal, as mapping or sequence, matched to an optimizer's parameters and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


def parameter_names(optimizer: Optimizer) -> dict[Tensor, str]:
    """The names given with ``named_parameters()``, else the position of each parameter."""
    names: dict[Tensor, str] = {}
    for number, group in enumerate(optimizer.param_groups):
        known = group.get("param_names")
        for index, p in enumerate(group["params"]):
            names[p] = f"'{known[index]}'" if known else f"parameter {index} of group {number}"
    return names


def match_fisher(optimizer: Optimizer, fisher: Mapping[Any, Tensor] | Sequence[Tensor] | None) -> dict[Tensor, Tensor]:
    """``{parameter: F}`` for every trainable parameter whose group has a Fisher geometry; raises on any flaw."""
    names = parameter_names(optimizer)
    wanted = [p for g in optimizer.param_groups if g["geometry"] != "euclidean" for p in g["params"]]
    if fisher is None:
        if wanted:
            raise TypeError(
                "consolidate() needs the Fisher diagonal of your memory: "
                "optimizer.consolidate(tmln.diagonal_fisher(model, batches)), or use geometry='euclidean'"
            )
        return {}
    if not wanted:
        raise TypeError("geometry 'euclidean' uses no Fisher diagonal: call consolidate() without one")
    given = _by_parameter(fisher, names)
    matched: dict[Tensor, Tensor] = {}
    for p in wanted:
        if p in given:
            _check(given[p], p, names[p])
            matched[p] = given[p]
        elif p.requires_grad:
            raise KeyError(
                f"the Fisher diagonal has no entry for {names[p]} of shape {tuple(p.shape)}; "
                "was it computed on another model, or a copy?"
            )
    return matched


def _by_parameter(fisher: Mapping[Any, Tensor] | Sequence[Tensor], names: dict[Tensor, str]) -> dict[Tensor, Tensor]:
    if not isinstance(fisher, Mapping):
        if len(fisher) != len(names):
            raise ValueError(f"a sequence needs one tensor a parameter: {len(names)} parameters, {len(fisher)} tensors")
        return dict(zip(names, fisher, strict=True))
    owners: Mapping[str, Tensor] | None = getattr(fisher, "parameters", None)
    if owners is not None:
        return {owners[name]: value for name, value in fisher.items()}
    if all(isinstance(key, Tensor) for key in fisher):
        return dict(fisher)
    by_name = {name.strip("'"): p for p, name in names.items()}
    for key in fisher:
        if key not in by_name:
            raise KeyError(
                f"the Fisher diagonal names {key!r}, which is no parameter of this optimizer; pass what "
                "tmln.diagonal_fisher returned, {parameter: tensor}, or build the optimizer from "
                "model.named_parameters()"
            )
    return {by_name[key]: value for key, value in fisher.items()}


def _check(value: Tensor, p: Tensor, name: str) -> None:
    if value.shape != p.shape:
        raise ValueError(f"the Fisher diagonal of {name} has shape {tuple(value.shape)}, expected {tuple(p.shape)}")
    if not torch.isfinite(value).all():
        raise ValueError(f"the Fisher diagonal of {name} has entries that are not finite")
    if value.numel() and (least := float(value.min())) < 0:
        raise ValueError(f"the Fisher diagonal of {name} has negative entries (least {least:g})")
