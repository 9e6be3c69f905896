"""Networks of timm, with random weights or with pre-trained ones and their normalisation."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from tmln.models.picture_model import InputSpec, PictureModel
from tmln.models.weights_file import load_weights

OWN_OPTIONS = ("pretrained", "weights", "size", "inputs")  # not timm's, or not passed on as they are


def make_timm(name: str, channels: int, classes: int, options: Mapping[str, Any]) -> tuple[nn.Module, str | None]:
    """Return a network of timm and the name of its head.

    With ``pretrained`` (from timm's cache, or fetched by timm) or ``weights`` (a safetensors file)
    it takes pictures with values between 0 and 1, gray or RGB, which it resizes and normalises as
    its ``pretrained_cfg`` says. ``inputs`` is what a state spells in place of these. Without any of
    them it is timm's own, with random weights.
    """
    try:
        timm = importlib.import_module("timm")
    except ImportError as error:
        raise ImportError(f"model 'timm:{name}' needs timm: pip install timm") from error
    given = {key: value for key, value in options.items() if key not in OWN_OPTIONS}
    file, fetched = options.get("weights"), bool(options.get("pretrained"))
    if not (fetched or file or options.get("inputs")):
        if "size" in options:
            raise ValueError(f"model 'timm:{name}': size goes with pre-trained weights; set model.pretrained")
        network: nn.Module = timm.create_model(name, num_classes=classes, in_chans=channels, **given)
        return network, find_classifier(network)
    if channels not in (1, 3):
        raise ValueError(f"model 'timm:{name}' with pre-trained weights takes 1 or 3 channels, not {channels}")
    if fetched and not file:
        network = _fetch(timm, name, classes, given)
    else:
        network = timm.create_model(name, num_classes=classes, **given)
    head = find_classifier(network)
    if file and not is_planned(network):
        load_weights(network, Path(str(file)), head or "")
    spec = _read_inputs(network, name, options)
    return PictureModel(network, spec), None if head is None else f"network.{head}"


def is_planned(network: nn.Module) -> bool:
    """Return whether a network is a plan, without memory."""
    return any(p.is_meta for p in network.parameters())


def find_classifier(network: nn.Module) -> str | None:
    """Return the name of the layer that timm calls the classifier; None if it is not one layer."""
    get = getattr(network, "get_classifier", None)
    layer = None if get is None else get()
    if not isinstance(layer, nn.Module) or next(layer.parameters(), None) is None:
        return None
    return next((name for name, module in network.named_modules() if module is layer), None)


def _fetch(timm: Any, name: str, classes: int, given: Mapping[str, Any]) -> nn.Module:
    """Return the network with the weights of timm's cache, or those that timm can fetch."""
    try:
        network: nn.Module = timm.create_model(name, pretrained=True, num_classes=classes, **given)
    except Exception as error:  # no network, no weights, no package: of many types
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"model 'timm:{name}': no pre-trained weights ({type(error).__name__}: {reason}); get them into timm's "
            f"cache by python -c \"import timm; timm.create_model('{name}', pretrained=True)\" where there is a "
            "network, or give model.weights=FILE.safetensors"
        ) from error
    return network


def _read_inputs(network: nn.Module, name: str, options: Mapping[str, Any]) -> InputSpec:
    what = f"model 'timm:{name}'"
    if options.get("inputs"):
        return InputSpec.read(options["inputs"], f"{what}: option 'inputs'")
    config: Mapping[str, Any] = getattr(network, "pretrained_cfg", None) or {}
    size = options.get("size") or options.get("img_size") or (config.get("input_size") or [None])[-1]
    values = {"size": size, "mean": config.get("mean"), "std": config.get("std")}
    return InputSpec.read(values, f"{what}: its pretrained_cfg")
