"""Pickles read without trust: arrays, numbers, text and plain containers; anything else is refused unread."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from tmln.streams.bad import DataError


def _dtype(name: Any, align: Any = False, copy: Any = False) -> np.dtype[Any]:
    # Old pickles write 0 and 1 for the flags, which numpy has begun to refuse.
    return np.dtype(name.decode() if isinstance(name, bytes) else name, bool(align), bool(copy))


def _encode(text: str, encoding: str = "latin1") -> bytes:
    # How Python 3 writes bytes at protocol 2; other codecs have no business in an array.
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"codec {encoding!r} is not admitted")
    return text.encode("latin1")


# The functions that rebuild an array have moved between numpy's modules: an array tells where they are.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_FROM_BUFFER = np.empty(1).__reduce_ex__(5)[0]

ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("_codecs", "encode"): _encode,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _RECONSTRUCT for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _FROM_BUFFER for core in ("core", "_core")},
}


class ArrayUnpickler(pickle.Unpickler):
    """Finds only what is in ``ADMITTED``."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not admitted") from None


def read_pickle(path: Path) -> Any:
    """The content of a pickle file; text of Python 2 comes as bytes."""
    try:
        with open(path, "rb") as file:
            return ArrayUnpickler(file, encoding="bytes").load()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except Exception as error:  # a broken pickle can raise almost anything
        raise DataError(f"{path}: not a sound pickle of arrays ({error})") from error
