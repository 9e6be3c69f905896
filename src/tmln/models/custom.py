"""User models: ``package.module:Name``, a ``torch.nn.Module`` class or a marked function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar

from torch import nn

from tmln.user_code import REMEDY, VARIABLE, check_code, code_allowed, found_code

__all__ = ["VARIABLE", "check_allowed", "code_allowed", "factory", "own_model"]

MARK = "_tmln_factory"
# Options of timm that load an arbitrary file.
FILE_OPTIONS = ("checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")

Build = TypeVar("Build", bound=Callable[..., nn.Module])


def factory(build: Build) -> Build:
    """Mark a function as a model factory, so that a configuration may name it.

    >>> @factory
    ... def net(classes: int, shape: tuple[int, ...]) -> nn.Module:
    ...     return nn.Linear(shape[0], classes)
    """
    setattr(build, MARK, factory)
    return build


def check_allowed(name: str, options: Mapping[str, object], foreign: bool = False) -> None:
    """Raise if this model would import code, or load files, that the user has not allowed.

    ``foreign``: the name is from a file of another user, which may not download weights either.
    """
    kind, colon, rest = name.partition(":")
    if not colon or code_allowed():
        return
    if kind not in ("timm", "transformers"):
        check_code("model", name)
    if kind == "transformers":
        if not foreign:
            return
        what = f"model {name!r} reads a folder"
    elif ":" in rest or "/" in rest:
        what = f"model {name!r} is downloaded, and may contain code"
    elif found := [option for option in FILE_OPTIONS if option in options]:
        what = f"option {found[0]!r} of model {name!r} loads a file that may contain code"
    elif foreign and options.get("pretrained"):
        what = f"option 'pretrained' of model {name!r} downloads weights"
    elif foreign and options.get("weights"):
        what = f"option 'weights' of model {name!r} reads a file"
    else:
        return
    raise ValueError(f"{what}; {REMEDY}")


def own_model(name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, object]) -> nn.Module:
    """Build a user model, passing ``classes`` and ``shape`` if its signature accepts them."""
    build = _find_builder(name)
    parameters = inspect.signature(build).parameters.values()
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    given = {"classes": classes, "shape": shape}
    taken = {key: value for key, value in given.items() if open_ended or key in {p.name for p in parameters}}
    network = build(**taken, **options)
    if not isinstance(network, nn.Module):
        raise TypeError(f"model {name!r}: it made a {type(network).__name__}, not a torch.nn.Module")
    return network


def _find_builder(name: str) -> Callable[..., object]:
    """Return the named class or marked factory; nothing else is ever called."""
    build = found_code("model", name)
    if isinstance(build, type) and issubclass(build, nn.Module):
        return build
    if inspect.isfunction(build) and getattr(build, MARK, None) is factory:
        return build
    raise ValueError(
        f"model {name!r}: {name.partition(':')[2]!r} is neither a subclass of torch.nn.Module nor a function marked "
        "as a model factory; decorate the function with @tmln.models.factory"
    )
