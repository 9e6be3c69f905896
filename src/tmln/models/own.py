"""Models of the user's: ``package.module:Name``, a class of ``torch.nn.Module`` or a function marked as a factory.

A name in a configuration is somebody's text, and importing a module runs it: a run imports nothing unless whoever
started it has said so (``tmln --allow-code``, or TMLN_ALLOW_CODE=1).
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from typing import TypeVar

from torch import nn

VARIABLE = "TMLN_ALLOW_CODE"
MARK = "_tmln_factory"
# Options of timm that load files of anybody's choosing.
LOADING = ("checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")

Build = TypeVar("Build", bound=Callable[..., nn.Module])


def factory(build: Build) -> Build:
    """Marks a function that makes a model, so that a configuration may name it.

    >>> @factory
    ... def net(classes: int, shape: tuple[int, ...]) -> nn.Module:
    ...     return nn.Linear(shape[0], classes)
    """
    setattr(build, MARK, factory)
    return build


def code_allowed() -> bool:
    """Whether configurations may name code, in this process and those it starts."""
    return os.environ.get(VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")


def check_allowed(name: str, options: Mapping[str, object]) -> None:
    """An error if a run of this model would import code, or load files by code, that nobody has allowed."""
    kind, colon, rest = name.partition(":")
    if not colon or code_allowed():
        return
    if kind != "timm":
        what = f"model {name!r} is code outside tmln, and importing it runs it"
    elif ":" in rest or "/" in rest:
        what = f"model {name!r} is fetched from elsewhere, and may bring code"
    elif found := [option for option in LOADING if option in options]:
        what = f"option {found[0]!r} of model {name!r} loads a file that may bring code"
    else:
        return
    raise ValueError(f"{what}; if you trust this configuration, say so: tmln --allow-code ..., or {VARIABLE}=1")


def own_model(name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, object]) -> nn.Module:
    """Made by what is named, which gets ``classes`` and ``shape`` under these names, where it takes them."""
    build = _found(name)
    parameters = inspect.signature(build).parameters.values()
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    given = {"classes": classes, "shape": shape}
    taken = {key: value for key, value in given.items() if open_ended or key in {p.name for p in parameters}}
    network = build(**taken, **options)
    if not isinstance(network, nn.Module):
        raise TypeError(f"model {name!r}: it made a {type(network).__name__}, not a torch.nn.Module")
    return network


def _found(name: str) -> Callable[..., object]:
    """What is named, if it is of a kind that makes models: nothing else is ever called."""
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"model {name!r}: no module {module_name!r}; set PYTHONPATH to its folder") from error
    build: object = getattr(module, attribute, None)
    if build is None:
        raise ValueError(f"model {name!r}: {module_name} has no {attribute!r}")
    if isinstance(build, type) and issubclass(build, nn.Module):
        return build
    if inspect.isfunction(build) and getattr(build, MARK, None) is factory:
        return build
    raise ValueError(
        f"model {name!r}: {attribute!r} is neither a class of torch.nn.Module nor a function marked as one that makes "
        "models; write @tmln.models.factory before its def"
    )
