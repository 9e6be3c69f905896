"""The restricted unpickler: arrays of every age come through, code does not."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tmln.streams import DataError
from tmln.streams.unpickle import read_pickle

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
