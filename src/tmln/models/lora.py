"""Low-rank adapters (Hu et al. 2022) beside the frozen linear layers of a network, by peft."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

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
