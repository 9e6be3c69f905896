"""What a reader is told of a part: its rule, where it comes from, what it costs, when to take it and when not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guide:
    """The words of a part's page in the documentation; its settings and the memory it holds are there by themselves.

    ``equation`` is LaTeX. ``origin`` names the paper, or is empty where there is none. The others are sentences
    without a subject: "as many samples again in every step", "where samples may be stored".
    """

    equation: str
    origin: str
    cost: str
    use: str
    avoid: str
