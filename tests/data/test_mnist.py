"""MNIST's idx files: read exactly, refused when they are not whole."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data import made
from tmln.data import BadDataWarning, DataError
from tmln.data.mnist import IDX_NAMES, read_idx
from tmln.streams import make_stream


def test_plain_and_compressed(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "plain").write_bytes(made.idx(array))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(made.idx(array)))
    assert np.array_equal(read_idx(tmp_path / "plain", 3), array)
    assert np.array_equal(read_idx(tmp_path / "packed", 3), array)
    assert read_idx(tmp_path / "plain", 3).flags.writeable  # torch wants to own what it wraps


def test_split(tmp_path: Path) -> None:
    made.make_idx(tmp_path / "MNIST" / "raw")
    stream = make_stream("split-mnist", root=tmp_path)
    assert [task.classes for task in stream] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    x, y = stream[1].train.gather(torch.tensor([0, 3]))
    assert y.tolist() == [2, 3]
    assert x[:, 0, 13, 27].tolist() == [2, 13]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an idx file"),
        (b"\0\0\x08\x01\0\0\0\x02\0\0\0\0", "not an idx file of bytes with 3"),
        (made.idx(np.zeros((60, 28, 28), np.uint8))[:-1], "truncated"),
        (made.idx(np.zeros((60, 28, 28), np.uint8)) + b"x", "truncated"),
        (gzip.compress(made.idx(np.zeros((60, 28, 28), np.uint8)))[:-20], "cannot be read"),
        (gzip.compress(bytes(100))[:12] + b"junkjunkjunkjunkjunk", "not an idx file"),
        (made.idx(np.zeros((59, 28, 28), np.uint8)), "59 images but 60 labels"),
    ],
    ids=["empty", "labels", "one byte short", "one byte long", "gzip cut short", "gzip of junk", "one image short"],
)
def test_bad_images(data: bytes, message: str, tmp_path: Path) -> None:
    made.make_idx(tmp_path / "mnist")
    (tmp_path / "mnist" / f"{IDX_NAMES[0]}.gz").write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        make_stream("split-mnist", root=tmp_path)
    assert IDX_NAMES[0] in str(caught.value)


def test_wrong_label(tmp_path: Path) -> None:
    made.make_idx(tmp_path / "mnist")
    labels = (np.arange(60) % 10).astype(np.uint8)
    labels[4] = 200
    (tmp_path / "mnist" / IDX_NAMES[1]).write_bytes(made.idx(labels))
    with pytest.raises(DataError, match="image 4 has label 200"):
        make_stream("split-mnist", root=tmp_path)
    with pytest.warns(BadDataWarning, match="left out 1 bad item"):
        stream = make_stream("split-mnist", root=tmp_path, skip_bad=True)
    assert len(stream[2].train) == 11


def test_permuted_mixes_pixels_within_each_image(tmp_path: Path) -> None:
    made.make_idx(tmp_path / "mnist")
    pixels = np.arange(60 * 784, dtype=np.uint32).reshape(60, 28, 28) % 251
    (tmp_path / "mnist" / f"{IDX_NAMES[0]}.gz").write_bytes(gzip.compress(made.idx(pixels.astype(np.uint8))))
    stream = make_stream("permuted-mnist", root=tmp_path, tasks=3)
    plain, mixed = stream[0].train.x.flatten(1), stream[2].train.x.flatten(1)
    assert stream[2].domain == "permutation 2"
    assert not torch.equal(plain, mixed)
    assert torch.equal(plain.sort(1).values, mixed.sort(1).values)
    assert not torch.equal(stream[1].train.x.flatten(1), mixed)


def test_a_packed_file_is_not_unpacked_past_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two megabytes of gzip hold 1.5 GB of zeros: no more than the header promises, and one byte, is looked at."""
    asked: list[int] = []
    read = gzip.GzipFile.read

    def spy(file: gzip.GzipFile, size: int | None = -1) -> bytes:
        asked.append(-1 if size is None else size)
        return read(file, size)

    monkeypatch.setattr(gzip.GzipFile, "read", spy)
    small = made.idx(np.zeros((2, 3, 4), np.uint8))
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(small + bytes(1 << 20)))
    with pytest.raises(DataError, match=r"bomb.gz: more than 24 bytes for shape \(2, 3, 4\)"):
        read_idx(tmp_path / "bomb", 3)
    assert asked == [16, 25]
    (tmp_path / "liar.gz").write_bytes(gzip.compress(b"\0\0\x08\x03" + b"\0\xff\xff\xff" * 3 + bytes(100)))
    with pytest.raises(DataError, match=r"liar.gz: says that it has 4,722,.* bytes, more than the 268,435,456"):
        read_idx(tmp_path / "liar", 3)
    assert asked == [16, 25, 16]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="not a regular file"):
        read_idx(tmp_path / "pipe", 3)
