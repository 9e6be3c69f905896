"""A figure to draw on and a file to put it in: matplotlib's objects, no global state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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

    checked_suffix(path).parent.mkdir(parents=True, exist_ok=True)
    # no dates: the same runs give the same file
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tmln", "pdf.fonttype": 42}):
        figure.savefig(path, dpi=200, metadata=undated)
    return path
