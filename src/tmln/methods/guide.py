"""What a reader is told of a part or a method: its rule, its origin, what it costs, when to take it and when not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guide:
    """The words of a page in the documentation; settings and the memory that is held are there by themselves.

    ``equation`` is LaTeX. ``origin`` names the paper, or is empty where there is none. The others are sentences
    without a subject: "As many samples again in every step.", "Where samples may be stored." A page of the
    documentation that they name, ``docs/speed.md``, becomes a link.
    """

    equation: str
    origin: str
    cost: str
    use: str
    avoid: str
