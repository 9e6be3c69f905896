"""What the repository says of itself: pyproject.toml, and the targets of the Makefile with what they do."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it there

ROOT = Path(__file__).parents[2]


def toml() -> dict[str, Any]:
    """The whole of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return found


def version() -> str:
    """As it stands in the one place where it stands. Read, not imported: what is installed may be another."""
    text = (ROOT / "src/tmln/__init__.py").read_text(encoding="utf-8")
    return str(re.findall(r'^__version__ = "(.+?)"', text, re.M)[0])


def targets() -> dict[str, list[str]]:
    """Of the Makefile, by name; what each does, with the names of places filled in."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    places = dict(re.findall(r"^(\w+) *[?:]= *(.*)$", text, re.M))
    for _ in places:  # a place may be within another
        text = re.sub(r"\$\((\w+)\)", lambda found: places.get(found[1], found[0]), text)
    return {
        found[1]: [line.strip().lstrip("@") for line in found[2].splitlines()]
        for found in re.finditer(r"^([a-z-]+):.*\n((?:\t.*\n)*)", text, re.M)
    }
