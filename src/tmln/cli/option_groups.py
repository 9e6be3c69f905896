"""A command whose options come in groups, as typer is to read it: it reads signatures, and wants them flat."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

import typer

from tmln.cli.benchmarks import TakesSettings


def add(app: typer.Typer, command: Callable[..., None], name: str | None = None) -> None:
    """A command, its groups of options spread out; the list of commands has its first words whole."""
    words = " ".join((command.__doc__ or "").partition("\n\n")[0].split())
    flat = grouped(command)
    takes_settings = "sets" in inspect.signature(flat).parameters
    app.command(name, cls=TakesSettings if takes_settings else None, short_help=words)(flat)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer is to read it: a parameter that is a group becomes the options of that group.

    The parameter's default says in which of them the command differs: ``what: What = What(seeds=3)``.
    """
    hints, groups = get_type_hints(command, include_extras=True), dict[str, Any]()
    flat: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind):
            default = kind() if parameter.default is parameter.empty else parameter.default  # type: ignore[operator]
            inner = get_type_hints(kind, include_extras=True)
            groups[parameter.name] = kind
            pairs = [(field.name, inner[field.name], getattr(default, field.name)) for field in fields(kind)]
        else:
            pairs = [(parameter.name, kind, parameter.default)]
        flat += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, annotation, default in pairs
        ]

    @functools.wraps(command)
    def typed(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)}) for name, kind in groups.items()
        }
        command(**given, **made)

    typed.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    typed.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return typed
