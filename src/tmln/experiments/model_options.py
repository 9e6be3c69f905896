"""The options of models, checked by the types of the functions that build them."""

from __future__ import annotations

import inspect
import reprlib
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tmln.models.registry import LIBRARIES, MODELS
from tmln.models.tuning_options import TUNING_DEFAULTS, TUNING_TYPES
from tmln.suggest import did_you_mean

LARGEST = 2**31 - 1


def model_options(model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all checked options of a model; for libraries' and users' models, those given.

    Options of fine-tuning and those added later are there where they are not the default.
    """
    kind, colon, _ = model.partition(":")
    if colon and kind not in LIBRARIES:
        return dict(given)
    tuning = {
        key: _checked(f"option {key!r} of model {model}", TUNING_TYPES[key], value)
        for key, value in given.items()
        if key in TUNING_TYPES
    }
    tuning = {key: value for key, value in tuning.items() if value != TUNING_DEFAULTS[key]}
    rest = {key: value for key, value in given.items() if key not in TUNING_TYPES}
    if colon:
        return {**rest, **tuning}
    if model not in MODELS:
        raise ValueError(f"unknown model {model!r}{did_you_mean(model, MODELS)} (tmln list models)")
    usual, kinds = _taken(MODELS[model].build)
    options = dict(usual)
    for key, value in rest.items():
        if key not in options:
            known = [*options, *TUNING_TYPES]
            hint = did_you_mean(key, known) or f"; it takes {', '.join(known)}"
            raise ValueError(f"unknown option {key!r} of model {model}{hint}")
        options[key] = _checked(f"option {key!r} of model {model}", kinds[key], value)
    later = MODELS[model].later
    options = {key: value for key, value in options.items() if key not in later or value != usual[key]}
    return {**options, **tuning}


@cache  # to look took a third of the time that a configuration takes
def _taken(build: Callable[..., Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the defaults and types of the options of a network."""
    taken = inspect.signature(build).parameters.items()
    usual = {key: parameter.default for key, parameter in taken if parameter.kind is parameter.KEYWORD_ONLY}
    return usual, typing.get_type_hints(build)


def _checked(what: str, kind: Any, value: Any) -> Any:
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
