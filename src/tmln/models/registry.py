"""The table of models, and ``make_model``, which builds one from the table, timm or user code."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import nn

from tmln.models.backbones import BACKBONES, make_backbone
from tmln.models.custom import own_model
from tmln.models.memory_format import to_channels_last
from tmln.models.mobilenet import MobileNetV2
from tmln.models.resnet import ReducedResNet18
from tmln.models.small import MLP, ConvNet, SmallCNN
from tmln.suggest import did_you_mean

Shape: TypeAlias = tuple[int, ...]


def _mlp(shape: Shape, classes: int, *, hidden: int | Sequence[int] = 128) -> nn.Module:
    return MLP(math.prod(shape), hidden, classes)


def _cnn(shape: Shape, classes: int, *, width: int = 16, hidden: int = 64) -> nn.Module:
    if shape[1] != shape[2]:
        raise ValueError(f"model 'cnn' takes square images, not {shape[1]}x{shape[2]}; use 'resnet18-slim'")
    return SmallCNN(classes, shape[0], shape[1], width, hidden)


def _convnet(shape: Shape, classes: int, *, width: int = 16) -> nn.Module:
    if min(shape[1:]) < 8:
        raise ValueError(f"model 'convnet' takes images of 8x8 pixels or more, not {shape[1]}x{shape[2]}; use 'mlp'")
    return ConvNet(classes, shape[0], width)


def _resnet18(shape: Shape, classes: int, *, width: int = 64) -> nn.Module:
    return ReducedResNet18(classes, width, shape[0])


def _resnet18_slim(shape: Shape, classes: int, *, width: int = 20) -> nn.Module:
    return ReducedResNet18(classes, width, shape[0])


def _mobilenet(shape: Shape, classes: int, *, width: float = 1.0, dropout: float = 0.2) -> nn.Module:
    return MobileNetV2(classes, width, shape[0], dropout)


def _backbone(name: str) -> Callable[..., nn.Module]:
    def build(shape: Shape, classes: int, *, size: int = BACKBONES[name].size, pretrained: bool = True) -> nn.Module:
        if shape[0] not in (1, 3):
            raise ValueError(f"model {name!r} takes pictures of 1 or 3 channels, not {shape[0]}")
        return make_backbone(name, classes, size, pretrained)

    return build


@dataclass(frozen=True)
class Model:
    """One row of the table: ``build(shape, classes, **options)`` makes the network."""

    build: Callable[..., nn.Module]
    summary: str
    images: bool = True


MODELS: dict[str, Model] = {
    "mlp": Model(_mlp, "multilayer perceptron, one hidden layer of 128", images=False),
    "cnn": Model(_cnn, "two convolutions and two linear layers, for digits"),
    "convnet": Model(_convnet, "three convolutions with batch normalisation, for small images on CPUs"),
    "resnet18": Model(_resnet18, "reduced ResNet18 for small images, width 64: the paper's"),
    "resnet18-slim": Model(_resnet18_slim, "reduced ResNet18 of width 20, for CPUs"),
    "mobilenetv2": Model(_mobilenet, "MobileNetV2 of width 1, for CORe50"),
    **{name: Model(_backbone(name), row.summary) for name, row in BACKBONES.items()},
}


def make_model(name: str, shape: Sequence[int], classes: int, **options: object) -> nn.Module:
    """Build a network for inputs of ``shape`` with one head over all classes.

    Networks for images are channels_last.

    Args:
        name: a name in ``MODELS``; ``timm:NAME``; or ``package.module:Name``, a subclass of
            ``nn.Module`` or a function marked by :func:`tmln.models.factory`. The latter two are
            passed ``classes`` and ``shape`` if their signature accepts them.
        shape: shape of one input, [C, H, W] for images.
        classes: number of outputs.
        options: keyword arguments of the model.

    Calling this with the name of user code imports that code; runs and files need permission first.
    """
    shape = tuple(int(size) for size in shape)
    if name.startswith("timm:"):
        return _prepare_for_images(_make_timm(name.removeprefix("timm:"), shape, classes, options), shape)
    if ":" in name:
        return _prepare_for_images(own_model(name, shape, classes, options), shape)
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}{did_you_mean(name, MODELS)} (tmln list models)")
    model = MODELS[name]
    if model.images and len(shape) != 3:
        raise ValueError(f"model {name!r} takes images [C, H, W], not inputs of shape {shape}; use 'mlp'")
    known = [key for key in inspect.signature(model.build).parameters if key not in ("shape", "classes")]
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known) or f"; it takes {', '.join(known)}"
            raise ValueError(f"unknown option {option!r} of model {name}{hint}")
    network = model.build(shape, classes, **options)
    return _prepare_for_images(network, shape) if model.images else network


def _prepare_for_images(network: nn.Module, shape: Shape) -> nn.Module:
    return to_channels_last(network) if len(shape) == 3 else network


def _make_timm(name: str, shape: Shape, classes: int, options: Mapping[str, object]) -> nn.Module:
    try:
        timm = importlib.import_module("timm")
    except ImportError as error:
        raise ImportError(f"model 'timm:{name}' needs timm: pip install timm") from error
    network: nn.Module = timm.create_model(name, num_classes=classes, in_chans=shape[0], **options)
    return network
