"""A family: the parts that answer one question, by name; found, checked, and with their settings read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from tmln.methods.component import Component
from tmln.methods.registry import INNER
from tmln.suggest import did_you_mean
from tmln.user_code import found_code, is_code

P = TypeVar("P", bound=Component[Any])


class Family(dict[str, type[P]]):
    """``name -> part``; ``package.module:Class`` is found, too.

    >>> from tmln.methods.steps import STEPS
    >>> STEPS.name, STEPS.question
    ('step', 'How does a gradient become a move?')
    """

    def __init__(self, kind: type[P], *parts: type[P]) -> None:
        super().__init__({part.name: part for part in parts})
        self.kind, self.name = kind, kind.family
        self.question = (kind.__doc__ or "").split("\n")[0]

    def find(self, name: str) -> type[P]:
        """The part of this name. A name with a colon is code, which is imported: ask whoever gave it first."""
        if name in self:
            return self[name]
        if not is_code(name):
            raise ValueError(
                f"unknown {self.name} {name!r}{did_you_mean(name, self)} ({self.name}s: {', '.join(self)}; tmln list "
                "parts; one of your own is called package.module:Class)"
            )
        found = found_code(self.name, name)
        if not (isinstance(found, type) and issubclass(found, self.kind)):
            raise ValueError(f"{self.name} {name!r}: it is no class of tmln.methods.{self.kind.__name__}")
        return found


def read_settings(part: type[Component[Any]], values: Mapping[str, Any]) -> Any:
    """The part's settings from plain values, with errors that name the setting, the value and what is allowed."""
    known = part.Settings.model_fields
    inside = {key: value for key, value in values.items() if part.wraps and key.startswith(f"{INNER}.")}
    own = {key: value for key, value in values.items() if key not in inside}
    for key in own:
        if key not in known:
            allowed = ", ".join(known) or "none"
            raise ValueError(f"{part.name!r} has no setting {key!r}{did_you_mean(key, known)} (settings: {allowed})")
    try:
        settings = part.Settings(**own)
        return part.Settings(**own, **_inner(part, settings, inside)) if part.wraps else settings
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(place) for place in first["loc"])
        raise ValueError(f"{part.name}.{where} = {first['input']!r}: {first['msg']}") from None


def _inner(part: type[Component[Any]], settings: Any, inside: Mapping[str, Any]) -> dict[str, Any]:
    given = {key.removeprefix(f"{INNER}."): value for key, value in inside.items()}
    return {f"{INNER}.{key}": value for key, value in part.inner_settings(settings, given).items()}
