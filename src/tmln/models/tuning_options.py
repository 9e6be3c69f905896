"""Options of all models about fine-tuning: ``model.freeze``, ``model.backbone_lr_scale`` etc."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tmln.methods.fine_tuning import FineTuning, set_fine_tuning
from tmln.models.lora import add_lora

# Types and defaults. A run's name has an option only where it is not the default.
TUNING_TYPES: dict[str, Any] = {
    "freeze": Literal["none", "backbone"],
    "backbone_lr_scale": float,
    "frozen_norms": bool | None,
    "lora": int,
}
TUNING_DEFAULTS: dict[str, Any] = {"freeze": "none", "backbone_lr_scale": 1.0, "frozen_norms": None, "lora": 0}


def tune_model(model: nn.Module, name: str, head: str | None, given: Mapping[str, Any], pretrained: bool) -> None:
    """Freeze, adapt and scale a network as the options say.

    Args:
        model: the network, changed in place.
        name: the model's, for errors.
        head: name of the layer that gives the output; None if it is not one layer.
        given: options of :data:`TUNING_DEFAULTS`.
        pretrained: whether the weights are pre-trained: then batch normalisation keeps its
            statistics unless ``frozen_norms`` says otherwise.
    """
    options = {**TUNING_DEFAULTS, **given}
    frozen = pretrained if options["frozen_norms"] is None else bool(options["frozen_norms"])
    frozen = frozen and any(isinstance(module, _BatchNorm) for module in model.modules())
    if options["freeze"] not in ("none", "backbone"):
        raise ValueError(f"model.freeze is 'none' or 'backbone', not {options['freeze']!r}")
    if options["lora"] and options["freeze"] == "backbone":
        raise ValueError("model.freeze=backbone trains the head alone, and model.lora adapters, too: choose one")
    if not options["lora"] and not frozen and options["freeze"] == "none" and options["backbone_lr_scale"] == 1:
        return
    if head is None:
        if not given:
            return
        raise ValueError(f"the head of model {name!r} is not one layer: its fine-tuning cannot be told apart")
    if options["lora"]:
        add_lora(model, int(options["lora"]), head)
    set_fine_tuning(model, FineTuning(head, options["freeze"], float(options["backbone_lr_scale"]), frozen))
