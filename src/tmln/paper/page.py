"""What an item of the paper becomes: tables of text, the numbers behind them, a picture, and what must be known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Sheet:
    """One table of text, the heading first."""

    title: str
    lines: list[list[str]]


@dataclass(frozen=True)
class Page:
    """One item. ``records`` are its numbers, whole and tidy, for programs."""

    name: str
    title: str
    sheets: list[Sheet] = field(default_factory=list)
    records: list[Mapping[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figure: Figure | None = None
