"""How a network is fine-tuned: what of it is frozen, and the rates of backbone and head.

A network carries this as an attribute (:func:`set_fine_tuning`), so that every step, the training
loop and a state that is opened again follow it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer

from tmln.distributed.data_parallel import BatchNorm

ATTRIBUTE = "fine_tuning"
MARK = "backbone"  # in a parameter group: whether it is of the backbone


@dataclass(frozen=True)
class FineTuning:
    """What is trained of a network whose layer ``head`` gives the output.

    Attributes:
        head: name of the layer that gives the output; all else is the backbone.
        freeze: ``backbone``: the head alone is trained, and all else stays as it is.
        backbone_lr_scale: factor of the learning rate for the backbone's weights.
        frozen_norms: batch normalisation keeps its running statistics and normalises by them.
    """

    head: str
    freeze: Literal["none", "backbone"] = "none"
    backbone_lr_scale: float = 1.0
    frozen_norms: bool = False


def set_fine_tuning(model: nn.Module, tuning: FineTuning) -> None:
    """Attach ``tuning`` to a network, and freeze what it says.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> set_fine_tuning(model, FineTuning(head="2", freeze="backbone"))
    >>> [name for name, p in model.named_parameters() if p.requires_grad]
    ['2.weight', '2.bias']
    """
    if not 0 < tuning.backbone_lr_scale < math.inf:
        raise ValueError(
            f"backbone_lr_scale must be positive and finite, got {tuning.backbone_lr_scale}; freeze='backbone' trains "
            "the head alone"
        )
    head = model.get_submodule(tuning.head)
    if tuning.freeze == "backbone":
        own = set(map(id, head.parameters()))
        for p in model.parameters():
            p.requires_grad_(id(p) in own)
    setattr(model, ATTRIBUTE, tuning)


def find_fine_tuning(model: nn.Module) -> tuple[nn.Module, FineTuning] | None:
    """Return the network within ``model`` that carries a :class:`FineTuning`, and that."""
    for module in model.modules():
        tuning = vars(module).get(ATTRIBUTE)
        if isinstance(tuning, FineTuning):
            return module, tuning
    return None


def is_frozen(module: nn.Module) -> bool:
    """Return whether a module has parameters, and none of them is trained."""
    flags = [p.requires_grad for p in module.parameters()]
    return bool(flags) and not any(flags)


def set_training_mode(model: nn.Module) -> None:
    """Set the training mode, except for what is frozen.

    With a frozen backbone all but the head is in evaluation mode: dropout and batch normalisation
    compute what they compute in a test. Batch normalisation whose weights are frozen keeps its
    statistics.
    """
    model.train()
    found = find_fine_tuning(model)
    if found is not None and found[1].freeze == "backbone":
        model.eval()
        found[0].get_submodule(found[1].head).train()
        return
    fixed = found is not None and found[1].frozen_norms
    for module in model.modules():
        if isinstance(module, BatchNorm) and (fixed or is_frozen(module)):
            module.eval()


def scale_backbone_lr(optimizer: Optimizer, model: nn.Module) -> None:
    """Give the backbone's weights parameter groups of their own, at their own rate.

    The head's groups come first: the first group's rate is the step's. Groups that were split
    before stay as they are.
    """
    found = find_fine_tuning(model)
    if found is None or found[1].backbone_lr_scale == 1.0 or any(MARK in group for group in optimizer.param_groups):
        return
    network, tuning = found
    split_groups(optimizer, network.get_submodule(tuning.head), tuning.backbone_lr_scale)


def split_groups(optimizer: Optimizer, layer: nn.Module, scale: float) -> None:
    """Split groups into those of the layer's weights and, at ``scale`` times the rate, the rest."""
    head = set(map(id, layer.parameters()))
    own, backbone = [], []
    for group in optimizer.param_groups:
        chosen = [id(p) in head for p in group["params"]]
        if part := _select(group, chosen):
            own.append({**part, MARK: False})
        if part := _select(group, [not is_head for is_head in chosen]):
            backbone.append({**part, MARK: True, "lr": group["lr"] * scale})
    optimizer.param_groups[:] = [*own, *backbone]


def _select(group: dict[str, Any], chosen: Sequence[bool]) -> dict[str, Any] | None:
    """Return the group with the chosen parameters only; None if there are none."""
    if not any(chosen):
        return None
    part = dict(group)
    for key in ("params", "param_names"):
        if key in group:
            values: list[Tensor | str] = [value for value, take in zip(group[key], chosen, strict=True) if take]
            part[key] = values
    return part
