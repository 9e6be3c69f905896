"""A share of the runs, for array jobs: machines that know nothing of each other and share the work all the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class ArraySlice:
    """Number ``index`` of ``count`` shares, from 1 on."""

    index: int = 1
    count: int = 1

    def of(self, jobs: Sequence[T]) -> list[T]:
        """Dealt out in turn, so that shares are disjoint, together everything, and equal in number to one.

        The order of a plan is that of the command, whatever has been done: the same command deals the same. Its
        references come first and take longest, and are dealt out evenly, too.

        >>> ArraySlice(1, 3).of("abcdefg"), ArraySlice(3, 3).of("abcdefg")
        (['a', 'd', 'g'], ['c', 'f'])
        """
        return list(jobs[self.index - 1 :: self.count])

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def whole(self) -> bool:
        """Nothing was divided."""
        return self.count == 1


def read_slice(text: str | None) -> ArraySlice:
    """``2/8``; all of it where nothing is given."""
    if text is None:
        return ArraySlice()
    found = re.fullmatch(r"\s*([0-9]{1,9})\s*/\s*([0-9]{1,9})\s*", text)
    if found is None:
        raise ValueError(f"--shard takes I/N, e.g. 2/8 for the second of eight shares, not {text!r}")
    index, count = int(found[1]), int(found[2])
    if not 1 <= index <= count:
        raise ValueError(f"there is no shard {text!r}: of {count} shares they are 1/{count} to {count}/{count}")
    return ArraySlice(index, count)
