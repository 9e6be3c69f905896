"""Decide what is not mutated: texts for people, types for checkers, descriptions of settings.

A test that pins such a text would have to change with every better wording, so survivors there say nothing
about the tests.
"""

from __future__ import annotations

import ast

DESCRIBES = ("description", "title", "examples", "json_schema_extra")  # keywords of pydantic's Field
LOGGERS = ("log", "logger", "logging")
TYPING = ("cast", "TypeVar", "isinstance", "issubclass", "NewType")


def is_ignored(node: ast.AST) -> bool:
    """Return whether this node is left out with all that is in it."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr, ast.arg)):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _logs(node.value)
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and _is_dunder(target.id) for target in node.targets)
    if isinstance(node, ast.Call):
        return _name(node.func) in TYPING or _logs(node)
    if isinstance(node, ast.keyword):
        return node.arg in DESCRIBES
    if isinstance(node, ast.Subscript):
        return _name(node.value) == "Literal"
    if isinstance(node, ast.If):
        return _name(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.FunctionDef):
        return node.name == "__repr__" or any(_name(d) == "overload" for d in node.decorator_list)
    return False


def ignored_fields(node: ast.AST) -> frozenset[str]:
    """Return the fields of a node that are left out while the node itself may change."""
    ignored = {"annotation", "returns", "decorator_list"}
    if isinstance(node, ast.Raise):  # that it is raised is tested, not what it says
        ignored |= {"exc", "cause"}
    if isinstance(node, ast.Call) and _name(node.func) == "warn":
        ignored |= {"args", "keywords"}
    if isinstance(node, ast.Call) and _name(node.func) == "zip":  # strict finds our mistakes, never those of users
        ignored |= {"keywords"}
    return frozenset(ignored)


def _logs(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _name(node.func.value) in LOGGERS


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
