"""The table of models, and ``make_model``, which builds one from the table, timm or user code."""

from __future__ import annotations

import inspect
import math
import reprlib
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError
from torch import nn

from tmln.models.backbones import BACKBONES, make_backbone
from tmln.models.custom import own_model
from tmln.models.memory_format import to_channels_last
from tmln.models.mobilenet import MobileNetV2
from tmln.models.picture_model import PictureModel
from tmln.models.small import MLP, ConvNet, ReducedResNet18, SmallCNN
from tmln.models.text_model import FEATURES, TextModel
from tmln.models.timm_models import make_timm
from tmln.models.transformers_models import make_text_transformers, make_transformers
from tmln.models.tuning_options import TUNING_DEFAULTS, TUNING_TYPES, tune_model
from tmln.suggest import did_you_mean

Shape: TypeAlias = tuple[int, ...]

HEAD = "linear"  # the layer that gives the output, in every network of the table
LIBRARIES = ("timm", "transformers")  # whose models need no permission to run code
LARGEST = 2**31 - 1


def _mlp(
    shape: Shape, classes: int, *, hidden: int | Sequence[int] = 128, depth: int = 1, dropout: float = 0.0
) -> nn.Module:
    return MLP(math.prod(shape), hidden, classes, depth, dropout)


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


def _minilm(shape: Shape, classes: int, *, pretrained: bool = True, tokenizer: str = "") -> nn.Module:
    given = {"pretrained": pretrained, **({"tokenizer": tokenizer} if tokenizer else {})}
    return make_text_transformers("", shape[0], classes, given)[0]


@dataclass(frozen=True)
class Model:
    """One row of the table: ``build(shape, classes, **options)`` makes the network.

    ``images`` says that inputs are images [C, H, W], ``texts`` that they are tokens [L].

    ``later`` names options without which the names of runs are those of earlier versions.
    """

    build: Callable[..., nn.Module]
    summary: str
    images: bool = True
    later: tuple[str, ...] = ()
    texts: bool = False


MODELS: dict[str, Model] = {
    "mlp": Model(_mlp, "multilayer perceptron, one hidden layer of 128", images=False, later=("depth", "dropout")),
    "cnn": Model(_cnn, "two convolutions and two linear layers, for digits"),
    "convnet": Model(_convnet, "three convolutions with batch normalisation, for small images on CPUs"),
    "resnet18": Model(_resnet18, "reduced ResNet18 for small images, width 64: the paper's"),
    "resnet18-slim": Model(_resnet18_slim, "reduced ResNet18 of width 20, for CPUs"),
    "mobilenetv2": Model(_mobilenet, "MobileNetV2 of width 1, for CORe50"),
    **{name: Model(_backbone(name), row.summary) for name, row in BACKBONES.items()},
    "minilm": Model(
        _minilm, f"all-MiniLM-L6-v2 for texts, {FEATURES} features, Apache-2.0", False, ("tokenizer",), texts=True
    ),
}


def make_model(name: str, shape: Sequence[int], classes: int, **options: object) -> nn.Module:
    """Build a network for inputs of ``shape`` with one head over all classes.

    Networks for images are channels_last.

    Args:
        name: a name in ``MODELS``; ``timm:NAME``; ``transformers:FOLDER``; or
            ``package.module:Name``, a subclass of ``nn.Module`` or a function marked by
            :func:`tmln.models.factory`, which is passed ``classes`` and ``shape`` if its signature
            accepts them.
        shape: shape of one input, [C, H, W] for images.
        classes: number of outputs.
        options: keyword arguments of the model; of all but user code also those of
            :data:`~tmln.models.tuning_options.TUNING_DEFAULTS`.

    Calling this with the name of user code imports that code; runs and files need permission first.
    """
    shape = tuple(int(size) for size in shape)
    kind, colon, rest = name.partition(":")
    if colon and kind not in LIBRARIES:
        return _prepare_for_images(own_model(name, shape, classes, options), shape)
    tuning = {key: value for key, value in options.items() if key in TUNING_DEFAULTS}
    options = {key: value for key, value in options.items() if key not in TUNING_DEFAULTS}
    head: str | None = HEAD
    is_text = kind == "transformers" and len(shape) == 1
    if colon and not is_text and len(shape) != 3:
        raise ValueError(f"model {name!r} takes images [C, H, W], not inputs of shape {shape}; use 'mlp'")
    if kind == "timm":
        network, head = make_timm(rest, shape[0], classes, options)
    elif is_text:
        network, head = make_text_transformers(rest, shape[0], classes, options)
    elif colon:
        network, head = make_transformers(rest, shape[0], classes, options)
    else:
        network = _make_listed(name, shape, classes, options)
    if len(shape) == 3 and (colon or MODELS[name].images):
        network = _prepare_for_images(network, shape)
    tune_model(network, name, head, tuning, is_pretrained(name, options))
    return network


def _make_listed(name: str, shape: Shape, classes: int, options: Mapping[str, object]) -> nn.Module:
    """Build a network of the table."""
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}{did_you_mean(name, MODELS)} (tmln list models)")
    model = MODELS[name]
    if model.images and len(shape) != 3:
        raise ValueError(f"model {name!r} takes images [C, H, W], not inputs of shape {shape}; use 'mlp'")
    if model.texts and len(shape) != 1:
        raise ValueError(f"model {name!r} takes tokens of texts [L], not inputs of shape {shape}")
    known = [key for key in inspect.signature(model.build).parameters if key not in ("shape", "classes")]
    for option in options:
        if option not in known:
            known += TUNING_DEFAULTS
            hint = did_you_mean(option, known) or f"; it takes {', '.join(known)}"
            raise ValueError(f"unknown option {option!r} of model {name}{hint}")
    return model.build(shape, classes, **options)


def is_pretrained(name: str, options: Mapping[str, object]) -> bool:
    """Return whether the weights of a model of the table or a library are pre-trained."""
    kind = name.partition(":")[0]
    if kind == "timm":
        return bool(options.get("pretrained") or options.get("weights"))
    return (kind == "transformers" or name in BACKBONES or takes_texts(name)) and bool(options.get("pretrained", True))


def takes_texts(name: str) -> bool:
    """Return whether a model of the table takes tokens of texts."""
    return name in MODELS and MODELS[name].texts


def takes_pixels(name: str, options: Mapping[str, object]) -> bool:
    """Return whether a model takes values between 0 and 1, and resizes and normalises by itself."""
    kind = name.partition(":")[0]
    has_inputs = kind == "timm" and bool(is_pretrained(name, options) or options.get("inputs"))
    return name in BACKBONES or kind == "transformers" or has_inputs


def spell_options(name: str, options: Mapping[str, object], network: nn.Module) -> dict[str, object]:
    """Return the options by which a state builds the same model, without the files it came from."""
    spelled = dict(options)
    if name in BACKBONES or takes_texts(name):
        spelled.setdefault("pretrained", True)
    if is_pretrained(name, options):
        spelled.setdefault("frozen_norms", True)
    if isinstance(network, (PictureModel, TextModel)):
        spelled.pop("weights", None)
        spelled.update(network.spelled)
    return spelled


def _prepare_for_images(network: nn.Module, shape: Shape) -> nn.Module:
    return to_channels_last(network) if len(shape) == 3 else network


def model_options(model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all checked options of a model; for libraries' and users' models, those given.

    Options of fine-tuning and those added later are there where they are not the default.
    """
    kind, colon, _ = model.partition(":")
    if colon and kind not in LIBRARIES:
        return dict(given)
    tuning = {
        key: _check_option(f"option {key!r} of model {model}", TUNING_TYPES[key], value)
        for key, value in given.items()
        if key in TUNING_TYPES
    }
    tuning = {key: value for key, value in tuning.items() if value != TUNING_DEFAULTS[key]}
    rest = {key: value for key, value in given.items() if key not in TUNING_TYPES}
    if colon:
        return {**rest, **tuning}
    if model not in MODELS:
        raise ValueError(f"unknown model {model!r}{did_you_mean(model, MODELS)} (tmln list models)")
    usual, kinds = _inspect_options(MODELS[model].build)
    options = dict(usual)
    for key, value in rest.items():
        if key not in options:
            known = [*options, *TUNING_TYPES]
            hint = did_you_mean(key, known) or f"; it takes {', '.join(known)}"
            raise ValueError(f"unknown option {key!r} of model {model}{hint}")
        options[key] = _check_option(f"option {key!r} of model {model}", kinds[key], value)
    later = MODELS[model].later
    options = {key: value for key, value in options.items() if key not in later or value != usual[key]}
    return {**options, **tuning}


@cache  # to look took a third of the time that a configuration takes
def _inspect_options(build: Callable[..., Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the defaults and types of the options of a network."""
    taken = inspect.signature(build).parameters.items()
    usual = {key: parameter.default for key, parameter in taken if parameter.kind is parameter.KEYWORD_ONLY}
    return usual, typing.get_type_hints(build)


def _check_option(what: str, kind: Any, value: Any) -> Any:
    try:
        found = TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"{what} = {value!r}: {error.errors()[0]['msg']}") from None
    sizes = found if isinstance(found, (list, tuple)) else [found]
    if any(isinstance(size, int) and abs(size) > LARGEST for size in sizes):  # torch would answer with a trace of C++
        raise ValueError(f"{what} = {reprlib.repr(value)}: more than {LARGEST:,} is more than a layer can have")
    return found


def one_line(error: ValidationError) -> str:
    """Return pydantic's first complaint in one line."""
    first = error.errors()[0]
    where = ".".join(str(place) for place in first["loc"])
    return f"{where} = {first['input']!r}: {first['msg']}"
