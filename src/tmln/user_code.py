"""Code of the user's that a configuration names, ``package.module:Name``.

Needs no torch. A name in a configuration is somebody's text, and importing a module runs it: a run
imports nothing unless its user allowed it (``tmln --allow-code``, or TMLN_ALLOW_CODE=1). A program
that passes a name asks for that code.
"""

from __future__ import annotations

import importlib
import os

VARIABLE = "TMLN_ALLOW_CODE"
REMEDY = f"if you trust this configuration, say so: tmln --allow-code ..., or {VARIABLE}=1"


def is_code(name: str) -> bool:
    """Return whether a name is in a module, rather than in a table."""
    return ":" in name


def code_allowed() -> bool:
    """Return whether configurations may name code, in this process and those it starts."""
    return os.environ.get(VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")


def check_code(what: str, name: str) -> None:
    """Raise if ``name`` is code that was not allowed."""
    if is_code(name) and not code_allowed():
        raise ValueError(f"{what} {name!r} is code outside tmln, and importing it runs it; {REMEDY}")


def found_code(what: str, name: str) -> object:
    """Import the module and return the named object, without calling it."""
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
