"""The five families of components: their names, tables and defaults.

Components found by name, settings checked.

Needs no torch: a family's table is imported when it is first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from tmln.suggest import did_you_mean
from tmln.user_code import found_code, is_code, name_class

if TYPE_CHECKING:
    from tmln.methods.component import Component

# family -> module and name of its table, and the default. In the order in which components are
# made, begun, ended (Algorithm 1; weights end first) and saved.
TABLES = {
    "replay": ("tmln.methods.replay", "REPLAYS", "none"),
    "penalty": ("tmln.methods.penalties", "PENALTIES", "none"),
    "step": ("tmln.methods.steps", "STEPS", "sgd"),
    "weights": ("tmln.methods.weights", "WEIGHTS", "last"),
    "answer": ("tmln.methods.answers", "ANSWERS", "argmax"),
}

INNER = "inner"  # the setting of a wrapper that names the wrapped component, whose settings are ``inner.NAME``

C = TypeVar("C", bound="Component[Any]")


@dataclass(frozen=True)
class Guide:
    """Documentation of a component or a method, besides its settings and its memory.

    Attributes:
        equation: The rule in LaTeX.
        origin: The paper; empty where there is none.
        cost: Time and memory, in phrases such as "Two forward passes a step.".
        use: When to use it. A page of the documentation (``docs/speed.md``) becomes a link.
        avoid: When not to use it.
    """

    equation: str
    origin: str
    cost: str
    use: str
    avoid: str


class Family(dict[str, type[C]]):
    """The components of one family: ``name -> class``.

    >>> from tmln.methods.steps import STEPS
    >>> STEPS.name, STEPS.question
    ('step', 'How does a gradient become an update?')
    """

    def __init__(self, base: type[C], *components: type[C]) -> None:
        super().__init__({component.name: component for component in components})
        self.base, self.name = base, base.family
        self.question = (base.__doc__ or "").split("\n")[0]

    def find(self, name: str) -> type[C]:
        """Return the component with this name.

        ``package.module:Class`` is imported, which needs ``--allow-code``.
        """
        if name in self:
            return self[name]
        if not is_code(name):
            raise ValueError(
                f"unknown {self.name} {name!r}{did_you_mean(name, self)} (known: {', '.join(self)}; tmln list "
                "components; a component of your own is package.module:Class)"
            )
        found = found_code(self.name, name)
        if not (isinstance(found, type) and issubclass(found, self.base)):
            raise ValueError(f"{self.name} {name!r} is not a subclass of tmln.methods.{self.base.__name__}")
        return found


def name_component(given: Any) -> Any:
    """Return the name of a component that is given as a class; anything else as it is."""
    if not isinstance(given, type):
        return given
    family, name = getattr(given, "family", None), getattr(given, "name", None)
    if family not in TABLES:
        raise ValueError(
            f"{given.__module__}.{given.__qualname__} is no component: derive it from tmln.methods.Replay, ..."
        )
    return name if FAMILIES[family].get(str(name)) is given else name_class(given)


class Families(Mapping[str, "Family[Any]"]):
    """``{"replay".

    REPLAYS, "penalty": PENALTIES, "step": STEPS, ...}``, each imported at its first use.
    """

    def __getitem__(self, name: str) -> Family[Any]:
        module, attribute, _ = TABLES[name]
        found: Family[Any] = getattr(importlib.import_module(module), attribute)
        return found

    def default(self, name: str) -> str:
        """Return the component of a recipe that names none of this family."""
        return TABLES[name][2]

    def __contains__(self, name: object) -> bool:
        return name in TABLES

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)


FAMILIES = Families()


def read_settings(component: type[Component[Any]], values: Mapping[str, Any]) -> Any:
    """Return the component's validated settings.

    Raises:
        ValueError: A setting is unknown or out of range; the message has its name, its value and
            what is allowed.
    """
    known = component.Settings.model_fields
    inner = {key: value for key, value in values.items() if component.is_wrapper and key.startswith(f"{INNER}.")}
    own = {key: value for key, value in values.items() if key not in inner}
    for key in own:
        if key not in known:
            allowed = ", ".join(known) or "none"
            raise ValueError(
                f"{component.family}.{key}: {component.name!r} has no setting {key!r}{did_you_mean(key, known)} "
                f"(settings: {allowed})"
            )
    try:
        settings = component.Settings(**own)
        if component.is_wrapper:
            given = {key.removeprefix(f"{INNER}."): value for key, value in inner.items()}
            try:
                resolved = component.resolve_inner_settings(settings, given)
            except ValueError as error:  # as it is typed: step.inner.damping
                family = f"{component.family}."
                raise ValueError(str(error).replace(family, f"{family}{INNER}.", 1)) from None
            settings = component.Settings(**own, **{f"{INNER}.{key}": value for key, value in resolved.items()})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(place) for place in first["loc"])
        raise ValueError(f"{component.family}.{where} = {first['input']!r}: {first['msg']}") from None
    return settings
