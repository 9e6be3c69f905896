"""Figures, their files, and the colour and marker of every method."""

from __future__ import annotations

import hashlib
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tmln.methods.recipes import RECIPES
from tmln.writing import replacing, writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SUFFIXES = (".png", ".svg", ".pdf")


def check_suffix(path: Path) -> Path:
    """Return the path if a figure can be drawn and written there; call it before long work."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"a picture is called {', '.join(f'NAME{suffix}' for suffix in SUFFIXES)}; got {str(path)!r}")
    require_matplotlib()
    return path


def require_matplotlib() -> None:
    """Raise, naming the extra that brings it, where matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'tmln[figures]'") from None


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, laid out so that nothing is cut off."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path) -> Path:
    """Save as .png, .svg or .pdf by the path's suffix; text stays text in the latter two."""
    from matplotlib import rc_context

    kind = check_suffix(path).suffix.lower()
    # without dates: the same runs give the same file
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(kind, {})
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tmln", "pdf.fonttype": 42}), writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as aside:
            figure.savefig(aside, dpi=200, metadata=undated, format=kind[1:])
    return path


# Colours of Okabe and Ito, which also differ in lightness; yellow is darkened for white paper
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
ORDER = ("tmln", "er", "ewc++", "rwalk", "upgd", "ocar", "naive", "joint")  # the paper's methods: one colour each


def wrap_label(label: str, width: int = 26) -> str:
    """Return a row's label in several lines, broken between its settings.

    >>> print(wrap_label("tmln step.damping=0.1 step.trajectory=10"))
    tmln step.damping=0.1
    step.trajectory=10
    """
    return "\n".join(textwrap.wrap(label, width, break_long_words=False, break_on_hyphens=False)) or label


@dataclass(frozen=True)
class MethodLook:
    """Colour, marker (matplotlib), symbol (plotly) and dash of one method."""

    colour: str
    marker: str
    symbol: str
    dash: str


def get_look(method: str) -> MethodLook:
    """Return a method's look; no two recipes share colour and marker, others have one by hash."""
    names = [*ORDER, *(name for name in RECIPES if name not in ORDER)]
    number = names.index(method) if method in names else hashlib.sha256(method.encode()).digest()[0]
    again, colour = divmod(number, len(COLOURS))
    marker, symbol = SHAPES[(colour + again) % len(SHAPES)]
    return MethodLook(COLOURS[colour], marker, symbol, DASHES[again % len(DASHES)])
