"""The table of models, and ``make_model``, which finds one in it, in timm, or in the user's own code."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import nn

from tmln.models.cnn import SmallCNN
from tmln.models.convnet import ConvNet
from tmln.models.custom import own_model
from tmln.models.mlp import MLP
from tmln.models.mobilenet import MobileNetV2
from tmln.models.narrow_conv import to_channels_last
from tmln.models.resnet import ReducedResNet18
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


@dataclass(frozen=True)
class Model:
    """One row: what builds the network from an input shape and a number of classes."""

    build: Callable[..., nn.Module]
    summary: str
    images: bool = True


MODELS: dict[str, Model] = {
    "mlp": Model(_mlp, "multilayer perceptron, one hidden layer of 128", images=False),
    "cnn": Model(_cnn, "two convolutions and two linear layers, for digits"),
    "convnet": Model(_convnet, "three convolutions with batch normalisation, for small pictures on CPUs"),
    "resnet18": Model(_resnet18, "reduced ResNet18 for small images, width 64: the paper's"),
    "resnet18-slim": Model(_resnet18_slim, "reduced ResNet18 of width 20, for CPUs"),
    "mobilenetv2": Model(_mobilenet, "MobileNetV2 of width 1, for CORe50"),
}


def make_model(name: str, shape: Sequence[int], classes: int, **options: object) -> nn.Module:
    """A network for inputs of ``shape`` with one head over all classes; channels_last for images.

    ``timm:NAME`` is a model of timm, ``package.module:Name`` one of the user's, a class of ``nn.Module`` or a function
    marked by :func:`tmln.models.factory`: it gets ``classes`` and ``shape`` under these names, where it takes them, and
    the options. A program that calls this with a name of its own asks for that code; runs ask whoever started them.
    """
    shape = tuple(int(size) for size in shape)
    if name.startswith("timm:"):
        return _to_images(_timm(name.removeprefix("timm:"), shape, classes, options), shape)
    if ":" in name:
        return _to_images(own_model(name, shape, classes, options), shape)
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
    return _to_images(network, shape) if model.images else network


def _to_images(network: nn.Module, shape: Shape) -> nn.Module:
    return to_channels_last(network) if len(shape) == 3 else network


def _timm(name: str, shape: Shape, classes: int, options: Mapping[str, object]) -> nn.Module:
    try:
        timm = importlib.import_module("timm")
    except ImportError as error:
        raise ImportError(f"model 'timm:{name}' needs timm: pip install timm") from error
    network: nn.Module = timm.create_model(name, num_classes=classes, in_chans=shape[0], **options)
    return network
