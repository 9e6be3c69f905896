"""Code of the user's that a configuration names, ``package.module:Name``.

Needs no torch. A configuration may come from another user, and importing a module runs it: a run
imports nothing unless its user allowed it (``tmln --allow-code``, or TMLN_ALLOW_CODE=1). A program
that passes a name or a class asks for that code, and so does installing a package that registers
methods (:mod:`tmln.methods.recipes`).
"""

from __future__ import annotations

import importlib
import os

VARIABLE = "TMLN_ALLOW_CODE"
TRUSTED = "TMLN_TRUSTED_CODE"  # names that the program itself gave, for the processes that it starts
REMEDY = f"if you trust this configuration, say so: tmln --allow-code ..., or {VARIABLE}=1"


def is_code(name: str) -> bool:
    """Return whether a name is in a module, rather than in a table."""
    return ":" in name


def code_allowed() -> bool:
    """Return whether configurations may name code, in this process and those it starts."""
    return os.environ.get(VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")


def trust_code(name: str) -> None:
    """Allow one name, in this process and those it starts."""
    if not is_trusted(name):
        os.environ[TRUSTED] = ",".join([*os.environ.get(TRUSTED, "").split(","), name]).strip(",")


def is_trusted(name: str) -> bool:
    """Return whether a name is code that may be imported."""
    return code_allowed() or name in os.environ.get(TRUSTED, "").split(",")


def is_foreign(name: str) -> bool:
    """Return whether a name is code that was not allowed."""
    return is_code(name) and not is_trusted(name)


_classes: dict[str, type] = {}  # that the program gave, by name: they need not be importable


def name_class(given: type) -> str:
    """Return ``module:Name`` of a class that the program gives, which allows it."""
    name = f"{given.__module__}:{given.__qualname__}"
    _classes[name] = given
    trust_code(name)
    return name


def check_code(what: str, name: str) -> None:
    """Raise if ``name`` is code that was not allowed."""
    if is_foreign(name):
        raise ValueError(f"{what} {name!r} is code outside tmln, and importing it runs it; {REMEDY}")


def found_code(what: str, name: str) -> object:
    """Import the module and return the named object, without calling it."""
    if name in _classes:
        return _classes[name]
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"{what} {name!r}: no module {module_name!r}; set PYTHONPATH to its folder") from error
    found: object = getattr(module, attribute, None)
    if found is None:
        raise ValueError(f"{what} {name!r}: {module_name} has no {attribute!r}")
    return found
