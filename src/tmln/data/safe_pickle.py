"""Pickles read as data: numbers, text, plain containers and arrays. Nothing in the file is imported, called or trusted.

Python's own unpickler calls what a file names, and numpy's types believe the state they are handed, even where it turns
bytes into pointers. So the few opcodes that a pickle of arrays needs are read here, by hand: a file can only say that
there is an array, of which type and shape, and give its bytes; numpy sees them once they fit together.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tmln.data.bad_data import DataError
from tmln.data.files import read_bounded
from tmln.data.npy_header import KINDS, Kind, Refused, Stored, member, stored

LARGEST = 1 << 30  # bytes of a file; the largest of CIFAR has 0.16e9
MOST = 1 << 23  # opcodes; the same file has 0.3e6
LOOKED_AT = 1 << 16  # bytes from which a text is not copied out of the file

# The functions that rebuild an array have moved between numpy's modules.
ADMITTED = {
    ("numpy", "dtype"): "dtype",
    ("numpy", "ndarray"): "ndarray",
    ("_codecs", "encode"): "encode",
    **{(f"numpy.{core}.multiarray", "_reconstruct"): "reconstruct" for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): "frombuffer" for core in ("core", "_core")},
}


@dataclass(frozen=True)
class Name:
    """One of ``ADMITTED``; a word, never the thing that it names."""

    word: str


def read_pickle(path: Path) -> Any:
    """The content of a pickle file, arrays in it (or in the dictionary it is) read-only; Python 2's text as bytes."""
    data = read_bounded(path, LARGEST)
    try:
        found = Machine(data).run()
        if isinstance(found, dict):
            return {key: _finished(value) for key, value in found.items()}
        return _finished(found)
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, struct.error) as error:
        reason = str(error) if isinstance(error, Refused) else f"{type(error).__name__} in it"
        raise DataError(f"{path}: not a sound pickle of arrays ({reason})") from error


def _finished(value: Any) -> Any:
    return value.array() if isinstance(value, Stored) else value


class Machine:
    """The stack, the memo, and what each opcode does with them."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks under each mark
        self.memo: dict[int, Any] = {}
        self.encoded = 0

    def run(self) -> Any:
        """The value that the file describes; :class:`Refused` at the first word that is not admitted."""
        data, safe, stack, at = self.data, len(self.data) - 260, self.stack, 0
        for _ in range(MOST):
            # Labels, file names and their places in the memo are nearly all there is. They take a short way, as long as
            # the file cannot end within them.
            code = data[at] if at < safe else LONG_WAY
            if code == BYTE:
                stack.append(data[at + 1])
                at += 2
            elif code in PUT:
                place = at + 1 + PUT[code]
                self.memo[int.from_bytes(data[at + 1 : place], "little")] = stack[-1]
                at = place
            elif code in SHORT:
                end = at + 2 + data[at + 1]
                stack.append(data[at + 2 : end])
                at = end
            else:
                self.at = at
                code = self.number(1)
                if code == STOP:
                    return stack[-1]
                if code not in ACTIONS:
                    raise Refused(f"opcode {bytes((code,))!r} is not admitted")
                ACTIONS[code](self)
                stack, at = self.stack, self.at
        raise Refused(f"more than {MOST:,} opcodes are not admitted")

    def take(self, count: int) -> bytes:
        """The next bytes; a file that ends within them is refused."""
        start, self.at = self.at, self.at + count
        if self.at > len(self.data):
            raise Refused("it is cut short")
        return self.data[start : self.at]

    def span(self, count: int) -> bytes | memoryview:
        """Pixels are looked at where they are; copied, they would be in memory twice."""
        if count < LOOKED_AT:
            return self.take(count)
        start, self.at = self.at, self.at + count
        if self.at > len(self.data):
            raise Refused("it is cut short")
        return memoryview(self.data)[start : self.at]

    def number(self, width: int, signed: bool = False) -> int:
        """Little-endian, of so many bytes."""
        return int.from_bytes(self.take(width), "little", signed=signed)

    def line(self) -> str:
        """Text up to the end of the line, as old protocols write numbers and names."""
        end = self.data.index(b"\n", self.at)
        return self.take(end + 1 - self.at)[:-1].decode("ascii")

    def mark(self) -> None:
        """Begin a group: what follows is gathered by :meth:`since_mark`."""
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        """End a group: its items; the stack is again what it was before the mark."""
        items, self.stack = self.stack, self.below.pop()
        return items

    def gather(self, count: int) -> None:
        """The last so many items become one tuple."""
        if len(self.stack) < count:
            raise Refused("it takes more than it holds")
        self.stack[len(self.stack) - count :] = [tuple(self.stack[len(self.stack) - count :])]

    def name(self, module: Any, name: Any) -> None:
        """A global becomes a word of ``ADMITTED``; nothing is imported."""
        if not (isinstance(module, str) and isinstance(name, str) and (module, name) in ADMITTED):
            raise Refused(f"{module}.{name} is not admitted" if isinstance(module, str) else "a name is no text")
        self.stack.append(Name(ADMITTED[module, name]))

    def extend(self, items: list[Any]) -> None:
        """Append to the list on top; anything else would run a method of its own."""
        target = self.stack[-1]
        if type(target) is not list:
            raise Refused("it appends to what is no list")
        target.extend(items)

    def fill(self, items: list[Any]) -> None:
        """Keys and values in turns, into the dictionary on top."""
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise Refused("it sets items of what is no dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) not in (str, bytes, int):  # hashing nested tuples has no end
                raise Refused("a key that is no text or number is not admitted")
            target[key] = value

    def reduce(self) -> None:
        """A call: of the few that arrays and bytes are made by, and done here, not by what is named."""
        given, function = self.stack.pop(), self.stack.pop()
        if type(given) is not tuple or type(function) is not Name:
            raise Refused("a call of what is no function is not admitted")
        if function.word == "encode":  # how Python 3 writes bytes at protocol 2
            text, codec = given if len(given) == 2 else (*given, "latin1")
            if type(text) is not str or codec != "latin1":
                raise Refused(f"codec {codec!r} is not admitted" if type(codec) is str else "a codec is no text")
            self.encoded += len(text)
            if self.encoded > len(self.data):
                raise Refused("one text encoded again and again is not admitted")
            self.stack.append(text.encode("latin1"))
        elif function.word == "dtype":
            self.stack.append(Kind(member(given[0], KINDS)))
        elif function.word == "reconstruct":
            self.stack.append(Stored())
        elif function.word == "frombuffer":
            content, kind, shape, order = given
            self.stack.append(stored(shape, kind, member(order, ("C", "F")) == "F", content))
        else:
            raise Refused(f"a call of {function.word} is not admitted")

    def build(self) -> None:
        """The state of the object on top: a type's byte order, or an array's shape, type and content."""
        state, target = self.stack.pop(), self.stack[-1]
        if type(state) is not tuple:
            raise Refused("a state that is no tuple is not admitted")
        if type(target) is Kind:
            # version, byte order, then what only structured types have, and flags that these types have none of
            version, order, *structure, size, alignment, flags = state
            if version != 3 or structure != [None, None, None] or (size, alignment, flags) != (-1, -1, 0):
                raise Refused("a type of several fields is not admitted")
            target.order = member(order, ("|", "<", ">", "="))
        elif type(target) is Stored:
            _, shape, kind, fortran, content = state
            vars(target).update(vars(stored(shape, kind, bool(fortran), content)))
        else:
            raise Refused("a state for what is no array is not admitted")


Action = Callable[[Machine], Any]


def _constant(make: Callable[[], Any]) -> Action:
    return lambda m: m.stack.append(make())


def _integer(width: int, signed: bool = False) -> Action:
    return lambda m: m.stack.append(m.number(width, signed))


def _bytes(width: int) -> Action:
    return lambda m: m.stack.append(m.span(m.number(width)))


def _text(width: int) -> Action:
    return lambda m: m.stack.append(m.take(m.number(width)).decode("utf-8", "surrogatepass"))


def _long(m: Machine) -> None:
    width = m.number(1)
    if width > 8:
        raise Refused("a whole number of more than 64 bits is not admitted")
    m.stack.append(m.number(width, signed=True))


def _tuple(m: Machine) -> None:
    items = m.since_mark()
    m.stack.append(tuple(items))


def _stack_global(m: Machine) -> None:
    name, module = m.stack.pop(), m.stack.pop()
    m.name(module, name)


def _put(width: int) -> Action:
    def put(m: Machine) -> None:
        m.memo[m.number(width)] = m.stack[-1]

    return put


def _memoize(m: Machine) -> None:
    m.memo[len(m.memo)] = m.stack[-1]


def _set_item(m: Machine) -> None:
    value, key = m.stack.pop(), m.stack.pop()
    m.fill([key, value])


STOP, BYTE, PUT, SHORT, LONG_WAY = ord("."), ord("K"), {ord("q"): 1, ord("r"): 4}, (ord("U"), ord("C")), -1
ACTIONS: dict[int, Action] = {
    0x80: lambda m: m.take(1),  # the protocol
    0x95: lambda m: m.take(8),  # a frame, which says how much to read at once
    ord("N"): _constant(lambda: None),
    0x88: _constant(lambda: True),
    0x89: _constant(lambda: False),
    ord("]"): _constant(list),
    ord("}"): _constant(dict),
    ord(")"): _constant(tuple),
    ord("K"): _integer(1),
    ord("M"): _integer(2),
    ord("J"): _integer(4, signed=True),
    0x8A: _long,
    ord("G"): lambda m: m.stack.append(struct.unpack(">d", m.take(8))[0]),
    ord("U"): _bytes(1),
    ord("T"): _bytes(4),
    ord("C"): _bytes(1),
    ord("B"): _bytes(4),
    0x8E: _bytes(8),
    0x96: _bytes(8),
    0x8C: _text(1),
    ord("X"): _text(4),
    0x8D: _text(8),
    ord("("): Machine.mark,
    0x85: lambda m: m.gather(1),
    0x86: lambda m: m.gather(2),
    0x87: lambda m: m.gather(3),
    ord("t"): _tuple,
    ord("a"): lambda m: m.extend([m.stack.pop()]),
    ord("e"): lambda m: m.extend(m.since_mark()),
    ord("s"): _set_item,
    ord("u"): lambda m: m.fill(m.since_mark()),
    ord("q"): _put(1),
    ord("r"): _put(4),
    0x94: _memoize,
    ord("h"): lambda m: m.stack.append(m.memo[m.number(1)]),
    ord("j"): lambda m: m.stack.append(m.memo[m.number(4)]),
    ord("c"): lambda m: m.name(m.line(), m.line()),
    0x93: _stack_global,
    ord("R"): Machine.reduce,
    ord("b"): Machine.build,
}
