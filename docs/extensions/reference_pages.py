"""Write a page for each public name, which autodoc fills, and the list of all of them."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGES = (
    "tmln", "tmln.optim", "tmln.curvature", "tmln.learner", "tmln.methods", "tmln.methods.penalties",
    "tmln.methods.replay", "tmln.models", "tmln.data", "tmln.streams", "tmln.experiments", "tmln.report",
)  # fmt: skip
MODULES = ("tmln.testing",)  # public as a whole, beside the modules that a package exports
TITLE = """API reference
=============

A page for each public name; :doc:`internals <../internals/index>` lists every other class and function, with those of
:doc:`integrations <../internals/integrations>`. Sphinx elsewhere can link these names: the site has an ``objects.inv``.
"""


def public_names() -> dict[str, dict[str, Any]]:
    """Return the exported names of each package: full name to object, each object once.

    >>> "tmln.TMLN" in public_names()["tmln"], "tmln.optim.TMLN" in public_names()["tmln.optim"]
    (True, False)
    """
    found: dict[str, dict[str, Any]] = {}
    seen: set[int] = set()
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if id(value) not in seen and getattr(value, "__name__", "") not in PACKAGES:
                seen.add(id(value))
                found.setdefault(package, {})[f"{package}.{name}"] = value
    for name in MODULES:
        found["tmln"][name] = importlib.import_module(name)
    return found


def format_name_page(name: str, value: Any) -> str:
    """Format the page of a name."""
    lines = [name, "=" * len(name), ""]
    if inspect.ismodule(value):
        lines += [f".. automodule:: {value.__name__}", "   :members:"]
    elif inspect.isclass(value):
        lines += [f".. autoclass:: {name}", "   :members:", "   :exclude-members: Settings", "   :show-inheritance:"]
    elif inspect.isroutine(value):
        lines += [f".. autofunction:: {name}"]
    else:
        lines += [f".. autodata:: {name}", "   :no-value:"]
    return "\n".join([*lines, ""])


def format_index(names: dict[str, dict[str, Any]]) -> str:
    """Format the list of all names, by package, with their first sentences."""
    lines = [TITLE]
    for package, members in names.items():
        lines += [package, "-" * len(package), "", ".. autosummary::", ""]
        lines += [f"   ~{name}" for name, value in members.items() if not inspect.ismodule(value)] + [""]
        lines += [f"- :doc:`{name}`: a module" for name, value in members.items() if inspect.ismodule(value)] + [""]
    return "\n".join([*lines, ".. toctree::", "   :hidden:", "", *(f"   {name}" for name in iterate(names)), ""])


def iterate(names: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield the full names of all packages."""
    for members in names.values():
        yield from members


def pages() -> dict[Path, str]:
    """Return all pages by path."""
    names = public_names()
    made = {Path("api") / "index.rst": format_index(names)}
    for members in names.values():
        made |= {Path("api") / f"{name}.rst": format_name_page(name, value) for name, value in members.items()}
    return made


LITERAL = re.compile(r"(``.+?``|:\w+:`[^`]+`|`[^`]+`_{0,2})", re.DOTALL)


def escape_formulas(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Let docstrings stand as they are written: ``theta*_i`` and ``|m|`` are formulas, no markup."""
    if what == "data":  # a table has the docstring of dict
        lines.clear()
    blocks = "\n".join(lines).split("\n\n")
    for place, block in enumerate(blocks):
        if place and blocks[place - 1].endswith(":") and block.startswith("    "):  # code or a formula
            blocks[place - 1] = blocks[place - 1].rstrip(":") + "::"
        elif not block.lstrip().startswith((">>>", "..")):
            pieces = LITERAL.split(block)
            pieces[::2] = [re.sub(r"(?<!\*)\*(?!\*?\w+:)|\||_(?=\W|$)", r"\\\g<0>", piece) for piece in pieces[::2]]
            blocks[place] = "".join(pieces)
    lines[:] = "\n\n".join(blocks).split("\n")


def setup(app: Any) -> dict[str, bool]:
    """Connect before napoleon reads the sections of a docstring."""
    app.connect("autodoc-process-docstring", escape_formulas, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
