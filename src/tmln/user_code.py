"""Code of the user's that a configuration names, ``package.module:Name``: who may name it, and how it is found.

Needs no torch. A name in a configuration is somebody's text, and importing a module runs it: a run imports nothing
unless whoever started it has said so (``tmln --allow-code``, or TMLN_ALLOW_CODE=1). A program that passes a name asks
for that code.
"""

from __future__ import annotations

import importlib
import os

VARIABLE = "TMLN_ALLOW_CODE"
REMEDY = f"if you trust this configuration, say so: tmln --allow-code ..., or {VARIABLE}=1"


def is_code(name: str) -> bool:
    """Whether this names something in a module, rather than a row of a table."""
    return ":" in name


def code_allowed() -> bool:
    """Whether configurations may name code, in this process and those it starts."""
    return os.environ.get(VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")


def check_code(what: str, name: str) -> None:
    """An error if ``name`` is code that nobody has allowed."""
    if is_code(name) and not code_allowed():
        raise ValueError(f"{what} {name!r} is code outside tmln, and importing it runs it; {REMEDY}")


def found_code(what: str, name: str) -> object:
    """What is named; its module is imported, and nothing in it called."""
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
