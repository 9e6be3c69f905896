"""The restricted unpickler: arrays of every age come through, code does not."""

from __future__ import annotations

import contextlib
import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tmln.data.safe_pickle import read_pickle
from tmln.streams import DataError

ARRAY = np.arange(12, dtype=np.uint8).reshape(3, 4)


def written(folder: Path, data: bytes) -> Path:
    path = folder / "pickle"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_and_containers(protocol: int, tmp_path: Path) -> None:
    content = {b"data": ARRAY, "labels": [1, 2, 3], "names": (b"a", None, 1.5, True)}
    read = read_pickle(written(tmp_path, pickle.dumps(content, protocol=protocol)))
    assert np.array_equal(read.pop(b"data"), ARRAY)
    assert read == {"labels": [1, 2, 3], "names": (b"a", None, 1.5, True)}


def test_as_python_2_and_old_numpy_wrote_it(tmp_path: Path) -> None:
    """Opcode by opcode: the module of the day, text as bytes, flags as numbers."""
    old = (
        b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02K\x03\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89U\x06\x00\x01\x02\x03\x04\x05tbs."
    )
    read = read_pickle(written(tmp_path, old))
    assert read[b"data"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read[b"data"].dtype == np.uint8


class Call:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.arguments


@pytest.mark.parametrize(
    "call",
    [Call(os.system, "touch made"), Call(eval, "1+1"), Call(getattr, 1, "real"), Call(np.load, "x")],
    ids=["system", "eval", "getattr", "load"],
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_code_is_refused(call: Call, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, pickle.dumps({b"data": ARRAY, b"labels": call}, protocol=protocol))
    with pytest.raises(DataError, match=r"pickle: not a sound pickle of arrays \(.* is not admitted"):
        read_pickle(path)
    assert not (tmp_path / "made").exists()


def test_a_name_cannot_reach_further(tmp_path: Path) -> None:
    path = written(tmp_path, b"\x80\x04\x8c\x05numpy\x8c\x09dtype.mro\x93.")
    with pytest.raises(DataError, match="not admitted"):
        read_pickle(path)
    codec = written(tmp_path, pickle.dumps(Call(__import__("_codecs").encode, "x", "rot13"), protocol=2))
    with pytest.raises(DataError, match="codec 'rot13' is not admitted"):
        read_pickle(codec)


@pytest.mark.parametrize("data", [b"", b"junk", pickle.dumps(ARRAY)[:-5], b"\x80\x02(."])
def test_broken(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="pickle: not a sound pickle"):
        read_pickle(written(tmp_path, data))


def test_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_pickle(tmp_path / "gone")


# -- hostile files -----------------------------------------------------------------------------------------------------


def peak(act: Any) -> int:
    """Bytes that Python and numpy held at most while it was done."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def array_of(kind: bytes, state: bytes, shape: bytes, content: bytes) -> bytes:
    """A pickle of one array, opcode by opcode, with the state of its type as given."""
    return (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01" + shape
        + b"cnumpy\ndtype\nU" + bytes((len(kind),)) + kind + b"K\x00K\x01\x87R" + state + b"\x89"
        + b"T" + len(content).to_bytes(4, "little") + content + b"tb."
    )  # fmt: skip


PLAIN = b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
# An object field at offset 0 within what is called eight bytes: numpy would take the content for pointers.
FIELDS = b"(K\x03U\x01|NU\x01a\x85}U\x01acnumpy\ndtype\nU\x01OK\x00K\x01\x87RK\x00\x86sK\x08K\x01K\x00tb"


@pytest.mark.parametrize(
    "data",
    [
        array_of(b"V8", FIELDS, b"K\x04\x85", b"A" * 32),
        array_of(b"u1", FIELDS, b"K\x04\x85", b"A" * 32),
        array_of(b"O", PLAIN, b"K\x04\x85", b"A" * 32),
        array_of(b"O8", PLAIN.replace(b"K\x00tb", b"K\x3ftb"), b"K\x04\x85", b"A" * 32),
        array_of(b"u1", PLAIN.replace(b"|NNN", b"|\x89NN"), b"K\x04\x85", b"A" * 4),
        array_of(b"u1", b"", b"K\x04\x85", b"A" * 5),
        array_of(b"u8", b"", b"K\x04\x85", b"A" * 4),
        array_of(b"u1", b"", b"J\xff\xff\xff\xff\x85", b"A"),
        array_of(b"u1", b"", b"]K\x01a", b"A"),
    ],
    ids=["hidden object", "in bytes", "objects", "flags", "subtype", "too long", "too short", "negative", "a list"],
)
def test_a_type_cannot_turn_bytes_into_pointers(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="pickle: not a sound pickle of arrays"):
        read_pickle(written(tmp_path, data))


def test_sound_arrays_made_the_same_way_are_read(tmp_path: Path) -> None:
    assert read_pickle(written(tmp_path, array_of(b"u1", PLAIN, b"K\x02K\x02\x86", b"abcd"))).tolist() == [
        [97, 98],
        [99, 100],
    ]
    big = array_of(b"i4", PLAIN.replace(b"|", b">"), b"K\x02\x85", b"\0\0\0\1\0\0\1\0")
    assert read_pickle(written(tmp_path, big)).tolist() == [1, 256]
    order = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    for protocol in (2, 5):
        assert np.array_equal(read_pickle(written(tmp_path, pickle.dumps(order, protocol=protocol))), order)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02Nr\x00\x00\x00\x08.",
        b"\x80\x02K\x00r\xff\xff\xff\x7f.",
        b"\x80\x02B\xff\xff\xff\x7fxx",
        b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b"x",
        b"\x80\x05\x96" + (1 << 31).to_bytes(8, "little") + b"x",
        b"\x80\x04\x95" + (1 << 31).to_bytes(8, "little") + b".",
        # an array without a buffer, as numpy's own constructor would make it
        b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85R.",
        b"\x80\x02cnumpy\nndarray\n(J\xff\xff\xff\x7f\x85cnumpy\ndtype\nU\x02u1\x85RC\x01xK\x00K\x00\x85tR.",
        # text that is encoded again and again
        b"\x80\x02c_codecs\nencode\nq\x00X\x00\x00\x01\x00" + b"x" * 65536 + b"q\x01X\x06\x00\x00\x00latin1q\x02\x86R"
        + b"(" + b"h\x00h\x01h\x02\x86R" * 2000 + b"t.",
    ],
    ids=["memo", "memo's end", "bytes", "8 bytes", "bytearray", "frame", "array", "stride 0", "encoded"],
)  # fmt: skip
def test_a_few_bytes_do_not_take_gigabytes(data: bytes, tmp_path: Path) -> None:
    path = written(tmp_path, data)

    def attempt() -> None:
        with contextlib.suppress(DataError):
            read_pickle(path)

    assert peak(attempt) < 2e7


@pytest.mark.slow
def test_nested_tuples_are_no_keys(tmp_path: Path) -> None:
    """Their hash would be computed 2^60 times in one case, and a million calls deep in the other."""
    doubled = b"\x80\x02}K\x01" + b"q\x01h\x01\x86" * 60 + b"K\x02s."
    deep = b"\x80\x02})" + b"\x85" * 1_000_000 + b"K\x02s."
    for data in (doubled, deep):
        with pytest.raises(DataError, match="a key that is not text or a number is not admitted"):
            read_pickle(written(tmp_path, data))


def test_pipes_and_endless_files_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with (tmp_path / "large").open("wb") as file:
        file.truncate((1 << 30) + 1)  # of holes
    for name, why in (("pipe", "not a regular file"), ("zero", "not a regular file"), ("large", "more than the")):
        with pytest.raises(DataError, match=rf"{name}: cannot be read \(.*{why}"):
            read_pickle(tmp_path / name)


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 199), st.binary(min_size=1, max_size=4))
def test_whatever_the_bytes_there_is_a_value_or_a_complaint(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, place: int, change: bytes
) -> None:
    whole = pickle.dumps({b"data": ARRAY, b"labels": [1, 2, 3]}, protocol=2)
    for data in (noise, whole[: place % len(whole)] + change + whole[place % len(whole) + len(change) :]):
        path = written(tmp_path_factory.getbasetemp(), data)
        with contextlib.suppress(DataError):
            read_pickle(path)
