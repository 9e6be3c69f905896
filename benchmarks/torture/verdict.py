"""Count the outcomes of faults in four numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """``lost``: work that was done and is not there; ``different``: another outcome, without a word said;
    ``unclear``: an error that is no single line, or does not say what is wrong."""

    injected: int = 0
    lost: int = 0
    different: int = 0
    unclear: int = 0
    notes: tuple[str, ...] = ()

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(
            self.injected + other.injected,
            self.lost + other.lost,
            self.different + other.different,
            self.unclear + other.unclear,
            self.notes + other.notes,
        )

    @property
    def sound(self) -> bool:
        return not (self.lost or self.different or self.unclear)


def lost(note: str) -> Verdict:
    return Verdict(lost=1, notes=(f"lost: {note}",))


def different(note: str) -> Verdict:
    return Verdict(different=1, notes=(f"different: {note}",))


def unclear(note: str) -> Verdict:
    return Verdict(unclear=1, notes=(f"unclear: {note}",))


def total(verdicts: Sequence[Verdict]) -> Verdict:
    return sum(verdicts, Verdict())
