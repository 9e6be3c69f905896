"""Nearly every public name is explained where it is defined."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from torch import nn

from tests.docstrings import SOURCE, names_of, public_names

SHARE = 0.95


def test_public_names_are_explained() -> None:
    found = list(public_names(sorted(SOURCE.rglob("*.py"))))
    missing = [public.name for public in found if not public.explained]
    assert len(found) > 1000
    assert 1 - len(missing) / len(found) >= SHARE, missing


class Above:
    """Explains one of two."""

    def said(self) -> None:
        """It is."""

    def unsaid(self) -> None: ...


@pytest.mark.parametrize(
    ("text", "bases", "said"),
    [
        ("def f(): 'so'", (), [("m.f", True)]),
        ("def f(): ...\ndef _g(): ...", (), [("m.f", False)]),
        ("class A:\n  'so'\n  def f(self): ...", (), [("m.A", True), ("m.A.f", False)]),
        ("class A:\n  def said(self): ...\n  def unsaid(self): ...", (Above,), [("m.A", False), ("m.A.unsaid", False)]),
        ("class A:\n  'so'\n  def forward(self, x): ...", (nn.Module,), [("m.A", True)]),
        ("class A:\n  'so'\n  @x.setter\n  def x(self, v): ...\n  @overload\n  def y(self): ...", (), [("m.A", True)]),
        ("class _A:\n  def f(self): ...", (), []),
    ],
)
def test_what_is_counted(text: str, bases: tuple[type, ...], said: list[Any]) -> None:
    module = type("module", (), {"A": type("A", bases, {})})
    assert [tuple(public) for public in names_of(ast.parse(text).body, "m", module)] == said
