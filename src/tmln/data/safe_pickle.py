"""Reader of the pickles in CIFAR's python version: arrays, lists, dicts and plain values, no code.

Only the opcodes below are run, names become the stand-ins below and are never imported, and sizes
are checked before numpy sees them. ``pickle._Unpickler`` is the interpreter in Python: the one in C
allots memory for any memo index, and hashes or walks values that are nested without limit.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmln.data.reading import DataError, read_bounded

MAX_BYTES = 1 << 30  # of a file; the largest of CIFAR has 0.16e9
MAX_READS = 1 << 24  # an opcode and its argument are two; the same file has 0.6e6
MAX_DIMENSIONS = 8
ERRORS = (ValueError, TypeError, LookupError, AttributeError, EOFError, struct.error, pickle.PickleError)
DTYPES = ("b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")


class Refused(ValueError):
    """Something in a pickle that an array does not need."""


def read_pickle(path: Path) -> Any:
    """Return the content of a pickle file; arrays are read-only, text of Python 2 is bytes."""
    data = read_bounded(path, MAX_BYTES)
    try:
        found = ArrayUnpickler(data).load()
        if isinstance(found, dict):
            return {key: _to_array(value) for key, value in found.items()}
        return _to_array(found)
    except ERRORS as error:
        reason = str(error) if isinstance(error, Refused) else f"{type(error).__name__} in it"
        raise DataError(f"{path}: not a sound pickle of arrays ({reason})") from error


def _to_array(value: Any) -> Any:
    return value.to_array() if isinstance(value, _Array) else value


def _text(value: Any) -> str:
    text = value.decode("ascii") if type(value) is bytes else value
    if type(text) is not str:
        raise Refused("a name that is not text is not admitted")
    return text


class _Dtype:
    """Stand-in for ``numpy.dtype``: a type of plain numbers and its byte order."""

    def __init__(self, name: Any, *flags: Any) -> None:
        self.name, self.order = _text(name), "="
        if self.name not in DTYPES:
            raise Refused(f"a type of {self.name!r} is not admitted")

    def __setstate__(self, state: Any) -> None:
        # version, byte order, three fields of structured types, size and alignment, flags
        version, order, *rest = state
        self.order = _text(order).replace("|", "=")
        if self.order not in ("<", ">", "=") or version != 3 or rest != [None, None, None, -1, -1, 0]:
            raise Refused("a type of several fields is not admitted")


class _Array:
    """Stand-in for ``numpy.ndarray``: what the file says of an array."""

    def __init__(self, *_: Any) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: Any) -> None:
        _, *self.state = state

    def to_array(self) -> NDArray[Any]:
        """Return the array, read-only; raise if shape, type and content do not fit together."""
        shape, dtype, fortran, content = self.state
        if type(shape) is not tuple or len(shape) > MAX_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
            raise Refused("a shape that is not a few whole numbers is not admitted")
        if type(dtype) is not _Dtype or type(content) is not bytes:
            raise Refused("an array of anything but numbers is not admitted")
        kind = np.dtype(dtype.name).newbyteorder(dtype.order)  # type: ignore[arg-type]
        if math.prod(shape) * kind.itemsize != len(content):
            raise Refused(f"{len(content):,} bytes for an array of {dtype.name} of shape {shape}")
        return np.frombuffer(content, kind).reshape(shape, order="F" if fortran else "C")


class _FromBuffer(_Array):
    """Stand-in for ``numpy.core.numeric._frombuffer``."""

    def __init__(self, content: Any, dtype: Any, shape: Any, order: Any) -> None:
        self.state = (shape, dtype, order == "F", content)


class _NotCallable:
    """Stand-in for a name that is passed on but never called."""

    def __init__(self, *_: Any) -> None:
        raise Refused("a call of numpy.ndarray is not admitted")


# The functions that rebuild an array have moved between numpy's modules.
ADMITTED: dict[tuple[str, str], type] = {("numpy", "dtype"): _Dtype, ("numpy", "ndarray"): _NotCallable}
for _core in ("core", "_core"):
    ADMITTED[f"numpy.{_core}.multiarray", "_reconstruct"] = _Array
    ADMITTED[f"numpy.{_core}.numeric", "_frombuffer"] = _FromBuffer


class _CountedBytes(io.BytesIO):
    """The file's bytes; too many reads are refused."""

    reads = 0

    def read(self, size: int | None = -1) -> bytes:
        self.reads += 1
        if self.reads > MAX_READS:
            raise Refused(f"more than {MAX_READS:,} reads are not admitted")
        return super().read(size)


class _Opcodes(dict[int, Any]):
    def __missing__(self, code: int) -> Any:
        raise Refused(f"opcode {bytes((code,))!r} is not admitted")


OPCODES = (
    pickle.PROTO + pickle.STOP + pickle.NONE + pickle.NEWTRUE + pickle.NEWFALSE + pickle.BININT + pickle.BININT1
    + pickle.BININT2 + pickle.LONG1 + pickle.BINFLOAT + pickle.BINSTRING + pickle.SHORT_BINSTRING + pickle.BINUNICODE
    + pickle.SHORT_BINUNICODE + pickle.BINUNICODE8 + pickle.BINBYTES + pickle.SHORT_BINBYTES + pickle.BINBYTES8
    + pickle.EMPTY_LIST + pickle.EMPTY_DICT + pickle.EMPTY_TUPLE + pickle.MARK + pickle.TUPLE + pickle.TUPLE1
    + pickle.TUPLE2 + pickle.TUPLE3 + pickle.BINPUT + pickle.LONG_BINPUT + pickle.MEMOIZE + pickle.BINGET
    + pickle.LONG_BINGET + pickle.GLOBAL + pickle.STACK_GLOBAL
)  # fmt: skip


class ArrayUnpickler(pickle._Unpickler):
    """Unpickler of arrays: other opcodes, names, calls and states are refused."""

    stack: list[Any]
    read: Callable[[int], bytes]
    pop_mark: Callable[[], list[Any]]
    dispatch = _Opcodes({code: pickle._Unpickler.dispatch[code] for code in OPCODES})

    def __init__(self, data: bytes) -> None:
        super().__init__(_CountedBytes(data), encoding="bytes")
        self.text_left = len(data)

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for a name; nothing is imported."""
        if (module, name) == ("_codecs", "encode"):
            return self.encode
        if (module, name) not in ADMITTED:
            raise Refused(f"{module}.{name} is not admitted")
        return ADMITTED[module, name]

    def encode(self, text: Any, codec: Any = "latin1") -> bytes:
        """Return bytes as Python 3 writes them at protocol 2, at most as many as the file has."""
        if type(text) is not str or codec != "latin1":
            raise Refused(f"codec {codec!r} is not admitted" if type(codec) is str else "a codec is not text")
        self.text_left -= len(text)
        if self.text_left < 0:
            raise Refused("text that is encoded again and again is not admitted")
        return text.encode("latin1")

    def load_frame(self) -> None:
        """Skip the size of a frame, which only says how much to read at once."""
        self.read(8)

    def load_append(self) -> None:
        """Append one item to the list on top of the stack."""
        self._extend([self.stack.pop()])

    def load_appends(self) -> None:
        """Append the items since the mark to the list on top of the stack."""
        self._extend(self.pop_mark())

    def _extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise Refused("it appends to what is not a list")
        self.stack[-1].extend(items)

    def load_setitem(self) -> None:
        """Set one item of the dictionary on top of the stack."""
        value, key = self.stack.pop(), self.stack.pop()
        self._update([key, value])

    def load_setitems(self) -> None:
        """Set the items since the mark in the dictionary on top of the stack."""
        self._update(self.pop_mark())

    def _update(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not dict:
            raise Refused("it sets items of what is not a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) not in (str, bytes, int):  # hashing nested tuples has no end
                raise Refused("a key that is not text or a number is not admitted")
            self.stack[-1][key] = value

    def load_reduce(self) -> None:
        """Call one of the stand-ins."""
        arguments, function = self.stack.pop(), self.stack.pop()
        if type(arguments) is not tuple or (function not in ADMITTED.values() and function != self.encode):
            raise Refused("a call of what is not a function is not admitted")
        self.stack.append(function(*arguments))

    def load_build(self) -> None:
        """Set the state of the type or array on top of the stack."""
        state, target = self.stack.pop(), self.stack[-1]
        if type(target) not in (_Dtype, _Array) or type(state) is not tuple:
            raise Refused("a state of what is not an array is not admitted")
        target.__setstate__(state)

    dispatch[pickle.FRAME[0]] = load_frame
    dispatch[pickle.APPEND[0]] = load_append
    dispatch[pickle.APPENDS[0]] = load_appends
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.BYTEARRAY8[0]] = pickle._Unpickler.load_binbytes8  # type: ignore[attr-defined]
