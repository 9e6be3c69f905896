"""A figure to draw on and a file to put it in: matplotlib's objects, no global state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tmln.writing import writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")


def checked_suffix(path: Path) -> Path:
    """The path, if a picture can be written there; ask before long work."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"a picture is called {', '.join(f'NAME{suffix}' for suffix in SUFFIXES)}; got {str(path)!r}")
    return path


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, laid out so that nothing is cut off."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'tmln[figures]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path) -> Path:
    """By the name's end: .png for screens, .svg and .pdf for print, with text that stays text."""
    from matplotlib import rc_context

    kind = checked_suffix(path).suffix.lower()
    aside = path.with_name(f".{path.stem}.writing-{os.getpid()}{kind}")
    # no dates: the same runs give the same file
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(kind, {})
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tmln", "pdf.fonttype": 42}), writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            figure.savefig(aside, dpi=200, metadata=undated)
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    return path
