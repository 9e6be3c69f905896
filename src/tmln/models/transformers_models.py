"""Image and text models of Hugging Face's transformers from a folder, with the inputs that it says.

Nothing is downloaded: a folder has ``config.json``, ``model.safetensors`` and, of images,
``preprocessor_config.json``, of texts, ``tokenizer.json``, as ``save_pretrained`` writes them. No
code of a folder is run.
"""

from __future__ import annotations

import importlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tmln.models.picture_model import InputSpec, PictureModel, to_colour
from tmln.models.text_model import MINILM, TextModel, find_minilm, read_tokenizer

TEXT_OPTIONS = ("pretrained", "tokenizer", "config")
OPTIONS = ("size", "pretrained", "inputs", "config")
HEAD_PREFIXES = ("classifier", "head", "fc")
# Entries of a configuration that say nothing of the network's shape, or name files or packages.
LEFT_OUT = {
    "architectures", "auto_map", "backbone", "backbone_config", "backbone_kwargs", "dtype", "id2label", "label2id",
    "num_labels", "quantization_config", "torch_dtype", "transformers_version", "use_pretrained_backbone",
    "use_timm_backbone",
}  # fmt: skip


class FeatureHead(nn.Module):
    """A network without classifier, and a linear layer on its features.

    Features are the pooled output or, without one, the mean over all positions.
    """

    def __init__(self, body: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.body, self.linear = body, nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        output = self.body(x)
        pooled = getattr(output, "pooler_output", None)
        if pooled is None:
            last = output.last_hidden_state
            pooled = last.flatten(2).mean(2) if last.dim() == 4 else last.mean(1)
        logits: Tensor = self.linear(pooled.flatten(1))
        return logits


def make_transformers(folder: str, channels: int, classes: int, options: Mapping[str, Any]) -> tuple[nn.Module, str]:
    """Return an image model of a folder with a new head, and the name of that head.

    Args:
        folder: what ``save_pretrained`` wrote.
        channels: of the pictures, 1 or 3.
        classes: outputs of the head.
        options: ``size`` of the inputs; ``pretrained``. ``config`` and ``inputs`` are what a state
            spells in place of the folder.
    """
    what = f"model 'transformers:{folder}'"
    if channels not in (1, 3):
        raise ValueError(f"{what} takes pictures of 1 or 3 channels, not {channels}")
    for option in options:
        if option not in OPTIONS:
            raise ValueError(f"unknown option {option!r} of {what}; it takes {', '.join(OPTIONS[:2])}")
    library = _import_library(what, "transformers")
    place = Path(folder).expanduser()
    if options.get("config") is None:
        config = _read_config(library, place, what)
        network = _load(library, place, config, classes, what, bool(options.get("pretrained", True)))
    else:
        config, network = _build_spelled(library, options["config"], classes, what)
    if options.get("inputs") is None:
        spec = read_preprocessor(place, what, options.get("size"), getattr(config, "image_size", None))
    else:
        spec = InputSpec.read(options["inputs"], f"{what}: option 'inputs'")
    model = PictureModel(network, spec, {"config": spell_config(config)})
    return model, f"network.{find_classifier(network, classes)}"


def make_text_transformers(folder: str, length: int, classes: int, options: Mapping[str, Any]) -> tuple[nn.Module, str]:
    """Return a text encoder of a folder with a new head, and the name of that head.

    Args:
        folder: what ``save_pretrained`` of the model and of its tokenizer wrote; "" is MiniLM.
        length: tokens of an input.
        classes: outputs of the head.
        options: ``pretrained``. ``config`` and ``tokenizer`` are what a state spells in place of
            the folder.
    """
    what = f"model 'transformers:{folder}'" if folder else "model 'minilm'"
    for option in options:
        if option not in TEXT_OPTIONS:
            raise ValueError(f"unknown option {option!r} of {what}; it takes {TEXT_OPTIONS[0]}")
    library, pretrained = _import_library(what, "text"), bool(options.get("pretrained", True))
    spelled: dict[str, Any] = {}
    if not folder and not pretrained:
        config = _parse_config(library, MINILM, what)
        body = library.AutoModel.from_config(config)
    elif options.get("config") is not None:
        config = _parse_config(library, options["config"], what)
        spelled["config"] = spell_config(config)
        body = library.AutoModel.from_config(config)
    else:
        place = Path(folder).expanduser() if folder else find_minilm()
        config = _read_config(library, place, what)
        spelled.update({"config": spell_config(config)} if folder else {})
        made: Any = _load(library, place, config, classes, what, pretrained)
        body = getattr(made, "body", None)
    if body is None or not hasattr(config, "vocab_size"):
        raise ValueError(f"{what} is no encoder of texts ({type(config).__name__}), and texts are to be learned")
    if length > (most := getattr(config, "max_position_embeddings", length)):
        raise ValueError(f"{what} takes {most} tokens at most, not {length}: set benchmark.length={most}")
    body.pooler = None  # the mean of the tokens' states takes its place
    tokenizer = options.get("tokenizer") or read_tokenizer(folder or None)
    return TextModel(body, _count_features(config), classes, str(tokenizer), spelled), "linear"


def _import_library(what: str, extra: str) -> Any:
    """Return the module transformers; the error names the extra that brings it."""
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise ImportError(f"{what} needs transformers: pip install 'tmln[{extra}]'") from error


def read_preprocessor(place: Path, what: str, size: int | None, trained: Any) -> InputSpec:
    """Return size and normalisation as ``preprocessor_config.json`` has them.

    Args:
        place: the folder.
        what: names the model in an error.
        size: pixels a side, in place of the file's.
        trained: the size in the model's own configuration, where the file has none.
    """
    file = place / "preprocessor_config.json"
    try:
        values = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{what}: {file.name} cannot be read ({error}); it has mean, std and size of the inputs: save the image "
            "processor into the folder (processor.save_pretrained)"
        ) from None
    found = values.get("crop_size") if values.get("do_center_crop") else values.get("size")
    found = found or values.get("size") or trained
    if isinstance(found, dict):
        found = found.get("height") or found.get("shortest_edge")
    try:
        mean, std = to_unit_scale(values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: {file.name}: mean and std are not those of three channels ({error})") from None
    return InputSpec.read({"size": size or found, "mean": mean, "std": std}, f"{what}: {file.name}")


def to_unit_scale(values: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation for values between 0 and 1.

    A processor computes (255 * x * rescale_factor - mean) / std.

    >>> to_unit_scale({"do_rescale": False, "image_mean": [127.5], "image_std": [127.5]})
    ([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])
    """
    scale = 255 * float(values.get("rescale_factor", 1 / 255)) if values.get("do_rescale", True) else 255.0
    if not values.get("do_normalize", True):
        return [0.0] * 3, [1.0 / scale] * 3
    mean, std = (to_colour(values.get(key, 0.5)) for key in ("image_mean", "image_std"))
    return [value / scale for value in mean], [value / scale for value in std]


def find_classifier(network: nn.Module, classes: int) -> str:
    """Return the name of the last linear layer with an output for each class."""
    layers = {name: module for name, module in network.named_modules() if isinstance(module, nn.Linear)}
    named: list[str] = [name for name, layer in layers.items() if layer.out_features == classes]
    outer: list[str] = [name for name in named if name.split(".")[0] in (*HEAD_PREFIXES, "linear")]
    return (outer or named)[-1]


def spell_config(config: Any) -> dict[str, Any]:
    """Return a configuration as plain values, without what names files, packages and labels."""
    plain = json.loads(json.dumps(config.to_dict(), default=str))
    return {key: value for key, value in plain.items() if key not in LEFT_OUT and not key.startswith("_")}


def _parse_config(library: Any, values: Mapping[str, Any], what: str) -> Any:
    """Return the configuration that a state spells.

    The state may be another's: only plain entries that the type of model has are read, and no type
    that wraps a network from elsewhere.
    """
    kind = str(values.get("model_type"))
    mapping = (*library.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING, *library.MODEL_MAPPING)
    kinds = {config.model_type: config for config in mapping if not config.model_type.startswith("timm")}
    if kind not in kinds:
        raise ValueError(f"{what}: option 'config' is of no model of transformers, {kind!r}")
    known = kinds[kind]().to_dict().keys() - LEFT_OUT - {"model_type"}
    plain = {key: value for key, value in values.items() if key in known and key[:1] != "_" and _is_plain(value)}
    return kinds[kind](**plain)


def _build_spelled(library: Any, values: Mapping[str, Any], classes: int, what: str) -> tuple[Any, nn.Module]:
    """Return the configuration that a state spells, and its network with random weights."""
    try:
        config = _parse_config(library, values, what)
        return config, _build(library, config, classes)
    except (ValueError, RuntimeError):
        raise
    except Exception as error:  # of a configuration that fits no network, of many types
        raise ValueError(f"{what}: option 'config' makes no network ({_one_line(error)})") from None


def _is_plain(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(isinstance(one, (str, int, float, type(None))) for one in values)


def _read_config(library: Any, place: Path, what: str) -> Any:
    if not (place / "config.json").is_file():
        raise ValueError(
            f"{what}: there is no config.json in {place}; write the folder by model.save_pretrained({str(place)!r}) "
            f"where the model is, or get it by: hf download OWNER/NAME --local-dir {shlex.quote(str(place))}"
        )
    try:
        return library.AutoConfig.from_pretrained(place, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"{what}: its configuration is not one of transformers ({_one_line(error)})") from None


def _build(library: Any, config: Any, classes: int) -> nn.Module:
    """Return the network with random weights."""
    if type(config) in library.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING:
        config.num_labels = classes
        network: nn.Module = library.AutoModelForImageClassification.from_config(config)
        return network
    return FeatureHead(library.AutoModel.from_config(config), _count_features(config), classes)


def _load(library: Any, place: Path, config: Any, classes: int, what: str, pretrained: bool) -> nn.Module:
    """Return the network of a folder; its head is new where it has another size."""
    if not pretrained or torch.empty(0).is_meta:  # a plan of a network, without memory
        return _build(library, config, classes)
    if not any(place.glob("*.safetensors")):
        code = f"from transformers import AutoModel as M; M.from_pretrained('{place}').save_pretrained('{place}')"
        raise ValueError(f'{what}: no model.safetensors in it; pickles are not read; convert it: python -c "{code}"')
    classifies = type(config) in library.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING
    kind = library.AutoModelForImageClassification if classifies else library.AutoModel
    config.num_labels = classes
    log = library.utils.logging
    level, shows = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()  # it warns of a new head, which is what is wanted
    log.disable_progress_bar()
    try:
        network, found = kind.from_pretrained(
            place,
            config=config,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            dtype=torch.float32,
            ignore_mismatched_sizes=classifies,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"{what}: its weights cannot be loaded ({_one_line(error)})") from None
    finally:
        log.set_verbosity(level)
        if shows:
            log.enable_progress_bar()
    head = find_classifier(network, classes) if classifies else None
    lacking = {str(key) for key in found["missing_keys"]} | {str(key[0]) for key in found["mismatched_keys"]}
    lacking = {key for key in lacking if head is None or not key.startswith(f"{head}.")}
    if head is None:  # a pooling layer that was not saved is not part of the features' network
        lacking = {key for key in lacking if "pooler" not in key}
    if lacking:
        raise ValueError(f"{what}: {len(lacking)} tensors of the network are not in the folder, {min(lacking)} for one")
    return network if classifies else FeatureHead(network, _count_features(config), classes)


def _count_features(config: Any) -> int:
    """Return the width of the features of a network without classifier."""
    width = getattr(config, "hidden_size", None) or getattr(config, "hidden_sizes", [0])[-1]
    return int(width)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
