"""Which public names have a docstring: ``python -m tests.docstrings`` lists those that have none.

Public are modules, classes, functions and methods without a leading underscore. What has no text of its own to read is
not counted: an override that inherits a docstring, also from another library, the setter of a property, an overload.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import tmln

SOURCE = Path(tmln.__file__).parent


class Public(NamedTuple):
    """A public name, and whether it is explained."""

    name: str
    explained: bool


def inherits(owner: type, name: str) -> bool:
    """A class above explains this method."""
    return any(getattr(above.__dict__.get(name), "__doc__", None) for above in owner.__mro__[1:])


def names_of(body: Iterable[ast.stmt], prefix: str, owner: object, of_class: bool = False) -> Iterator[Public]:
    """What is defined in the body of a module or a class, which ``owner`` is."""
    for node in body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or node.name.startswith("_"):
            continue
        if any(ast.unparse(one).split(".")[-1] in ("overload", "setter") for one in node.decorator_list):
            continue
        explained = ast.get_docstring(node) is not None
        if explained or not (of_class and isinstance(owner, type) and inherits(owner, node.name)):
            yield Public(f"{prefix}.{node.name}", explained)
        if isinstance(node, ast.ClassDef):
            yield from names_of(node.body, f"{prefix}.{node.name}", getattr(owner, node.name), of_class=True)


PEERS = ("tmln.integrations.avalanche",)  # need an environment of their own: make test-peers


def public_names(files: Iterable[Path], source: Path = SOURCE) -> Iterator[Public]:
    """Of these files of the package; they are imported, for what their classes inherit."""
    for file in files:
        parts = file.relative_to(source).with_suffix("").parts
        module = ".".join(("tmln", *(part for part in parts if part != "__init__")))
        tree = ast.parse(file.read_text(encoding="utf-8"))
        yield Public(module, ast.get_docstring(tree) is not None)
        if module not in PEERS:
            yield from names_of(tree.body, module, importlib.import_module(module))


if __name__ == "__main__":
    found = list(public_names(sorted(SOURCE.rglob("*.py"))))
    missing = [public.name for public in found if not public.explained]
    print(*missing, f"{1 - len(missing) / len(found):.1%} of {len(found)} are explained", sep="\n")
