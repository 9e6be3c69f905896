"""How a method looks, the same in every picture: a colour that colour-blind readers can tell apart, and a shape."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tmln.methods.recipes import RECIPES

# Okabe and Ito's colours, which differ in lightness too; the yellow is darkened to be seen on white
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8c6d1f", "#555555")
SHAPES = (  # matplotlib's name, plotly's name
    ("o", "circle"),
    ("s", "square"),
    ("^", "triangle-up"),
    ("D", "diamond"),
    ("v", "triangle-down"),
    ("P", "cross"),
    ("X", "x"),
    ("*", "star"),
    ("p", "pentagon"),
)
DASHES = ("solid", "dash", "dot", "dashdot")
ORDER = ("tmln", "er", "ewc++", "rwalk", "upgd", "ocar", "naive", "joint")  # the paper's methods first: one colour each


@dataclass(frozen=True)
class Look:
    """Of one method; ``marker`` is matplotlib's name of the shape, ``symbol`` plotly's."""

    colour: str
    marker: str
    symbol: str
    dash: str


def look_of(method: str) -> Look:
    """No two recipes share both colour and shape; a method that is none has a look by its name."""
    names = [*ORDER, *(name for name in RECIPES if name not in ORDER)]
    number = names.index(method) if method in names else hashlib.sha256(method.encode()).digest()[0]
    again, colour = divmod(number, len(COLOURS))
    marker, symbol = SHAPES[(colour + again) % len(SHAPES)]
    return Look(COLOURS[colour], marker, symbol, DASHES[again % len(DASHES)])
