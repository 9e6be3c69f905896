"""An array as a file tells of it: type, shape and bytes, which numpy sees only once they fit together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")
DEEPEST = 8  # dimensions of an array


class Refused(ValueError):
    """What a pickle of arrays has no need of."""


@dataclass
class Kind:
    """The type of an array's numbers."""

    name: str
    order: str = "|"


@dataclass
class Stored:
    """An array as the file tells of it."""

    shape: tuple[int, ...] = ()
    kind: Kind | None = None
    content: bytes | memoryview = b""
    fortran: bool = False

    def array(self) -> NDArray[Any]:
        """The numbers, which may not be written to."""
        if self.kind is None:
            raise Refused("an array without a type is not admitted")
        dtype = np.dtype(self.kind.name).newbyteorder("=" if self.kind.order == "|" else self.kind.order)  # type: ignore[arg-type]
        if math.prod(self.shape) * dtype.itemsize != len(self.content):
            raise Refused(f"{len(self.content):,} bytes for an array of {self.kind.name} of shape {self.shape}")
        return np.frombuffer(self.content, dtype).reshape(self.shape, order="F" if self.fortran else "C")


def member(word: Any, known: tuple[str, ...]) -> str:
    """The word, if it is one of these."""
    text = word.decode("ascii") if type(word) is bytes else word
    if type(text) is not str or text not in known:
        raise Refused(f"{text!r} is not admitted" if type(text) is str else "a word is no text")
    return text


def stored(shape: Any, kind: Any, fortran: bool, content: Any) -> Stored:
    """An array of plain numbers, each thing said of it being of the kind it should be."""
    if type(shape) is not tuple or len(shape) > DEEPEST or any(type(n) is not int or n < 0 for n in shape):
        raise Refused("a shape that is no few whole numbers is not admitted")
    if type(kind) is not Kind or type(content) not in (bytes, memoryview):
        raise Refused("an array of what are no numbers is not admitted")
    return Stored(shape, kind, content, fortran)
