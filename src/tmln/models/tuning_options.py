"""Options of all models about fine-tuning: ``model.freeze``, ``model.lora`` etc.

Low-rank adapters (Hu et al. 2022) beside frozen linear layers are added by peft.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn

from tmln.distributed.data_parallel import has_batch_norm
from tmln.methods.fine_tuning import FineTuning, set_fine_tuning

# Types and defaults. A run's name has an option only where it is not the default.
TUNING_TYPES: dict[str, Any] = {
    "freeze": Literal["none", "backbone"],
    "backbone_lr_scale": float,
    "frozen_norms": bool | None,
    "lora": int,
}
TUNING_DEFAULTS: dict[str, Any] = {"freeze": "none", "backbone_lr_scale": 1.0, "frozen_norms": None, "lora": 0}
LARGEST_RANK = 1024


def add_lora(model: nn.Module, rank: int, head: str) -> None:
    """Freeze a network and add adapters of this rank to its linear layers; the head is trained.

    Args:
        model: the network, changed in place.
        rank: columns of A and rows of B; the weight is W + 2 * B A (alpha is twice the rank).
        head: name of the layer that gives the output; it gets no adapter and is trained whole.
    """
    if not 1 <= rank <= LARGEST_RANK:
        raise ValueError(f"model.lora is a rank from 1 to {LARGEST_RANK}, not {rank}")
    try:
        peft = importlib.import_module("peft")
    except ImportError as error:
        raise ImportError("model.lora needs peft: pip install 'tmln[transformers]'") from error
    names = [name for name, m in model.named_modules() if isinstance(m, nn.Linear) and name != head]
    if not names:
        raise ValueError(
            f"model.lora adapts linear layers, and {type(model).__name__} has none but its head: use "
            "model.backbone_lr_scale, or a transformer"
        )
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=names)
    peft.inject_adapter_in_model(config, model)
    model.get_submodule(head).requires_grad_(True)


@contextmanager
def merge_adapters(model: nn.Module) -> Iterator[None]:
    """Put W + B A in place of adapted layers within the block: a plain network, for exports."""
    replaced: list[tuple[str, nn.Module]] = []
    try:
        for name, module in list(model.named_modules()):
            layer: Any = module
            if hasattr(module, "get_delta_weight") and hasattr(module, "get_base_layer"):
                base = copy.deepcopy(layer.get_base_layer())
                with torch.no_grad():
                    for adapter in layer.active_adapters:
                        base.weight += layer.get_delta_weight(adapter)
                model.set_submodule(name, base)
                replaced.append((name, module))
        yield
    finally:
        for name, module in replaced:
            model.set_submodule(name, module)


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
    frozen = frozen and has_batch_norm(model)
    if options["freeze"] not in ("none", "backbone"):
        raise ValueError(f"model.freeze is 'none' or 'backbone', not {options['freeze']!r}")
    if options["lora"] and options["freeze"] == "backbone":
        raise ValueError("model.freeze=backbone trains the head alone, and model.lora adapters, too: choose one")
    if not options["lora"] and not frozen and options["freeze"] == "none" and options["backbone_lr_scale"] == 1:
        return
    if head is None:
        if not given:
            return
        raise ValueError(f"the head of model {name!r} is not one layer, so backbone and head cannot be separated")
    if options["lora"]:
        add_lora(model, int(options["lora"]), head)
    set_fine_tuning(model, FineTuning(head, options["freeze"], float(options["backbone_lr_scale"]), frozen))
