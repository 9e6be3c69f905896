"""CIFAR: pixels in their places from both versions, and every way a copy can be bad."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data import made
from tests.data.made import SMALL10, SMALL100
from tmln.data import BadData, BadDataWarning, DataError
from tmln.data.cifar import read_cifar
from tmln.streams import make_stream


def strict() -> BadData:
    return BadData("cifar", skip=False)


def test_python_version(tmp_path: Path) -> None:
    held = read_cifar(made.make_cifar10(tmp_path), strict(), SMALL10)
    assert held.counts() == {"training": 100, "test": 20}
    assert held.pixels.shape == (120, 32, 32, 3)
    assert held.is_test.tolist() == [False] * 100 + [True] * 20
    assert held.class_names[3] == "class3"
    assert held.labels[27] == 7  # the seventh of the second batch
    assert held.pixels[27, 5, 9].tolist() == [7, 107, 207]


def test_planes_and_rows_are_where_cifar_has_them(tmp_path: Path) -> None:
    folder = made.make_cifar100(tmp_path)
    data = np.arange(300 * 3072).reshape(300, 3072) % 251
    (folder / "train").write_bytes(pickle.dumps({b"data": data.astype(np.uint8), b"fine_labels": list(range(100)) * 3}))
    held = read_cifar(folder, strict(), SMALL100)
    assert held.labels[2] == 2
    assert held.pixels[2, 3, 5, 1] == (2 * 3072 + 1 * 1024 + 3 * 32 + 5) % 251
    assert held.class_names == tuple(str(label) for label in range(100))  # no meta file: numbers


@pytest.mark.parametrize("fine", [False, True])
def test_binary_version_equals_python_version(tmp_path: Path, fine: bool) -> None:
    made.make_cifar10(tmp_path)
    made.make_cifar100(tmp_path)
    kind = SMALL100 if fine else SMALL10
    source = tmp_path / ("cifar-100-python" if fine else "cifar-10-batches-py")
    folder = tmp_path / "binary"
    folder.mkdir()
    for name, count in {**kind.train, **kind.test}.items():
        labels = (np.arange(count) % kind.classes).astype(np.uint8)[:, None]
        coarse = [np.full((count, 1), 99, np.uint8)] if fine else []
        np.concatenate([*coarse, labels, made.cifar_rows(count)], axis=1).tofile(folder / f"{name}.bin")
    (folder / kind.names).write_text("\n".join(f"class{label}" for label in range(kind.classes)) + "\n\n")
    binary, python = read_cifar(folder, strict(), kind), read_cifar(source, strict(), kind)
    assert np.array_equal(binary.pixels, python.pixels)
    assert np.array_equal(binary.labels, python.labels)
    assert binary.class_names[-1] == f"class{kind.classes - 1}"


def broken(folder: Path, what: str) -> Path:
    path = folder / "data_batch_2"
    content: dict[bytes, Any] = {b"data": made.cifar_rows(20), b"labels": [row % 10 for row in range(20)]}
    if what == "truncated":
        path.write_bytes(path.read_bytes()[:-1000])
        return path
    if what == "empty":
        path.write_bytes(b"")
        return path
    if what == "label":
        content[b"labels"] = [10, *content[b"labels"][1:]]
    elif what == "labels":
        content[b"labels"] = content[b"labels"][:19]
    elif what == "text":
        content[b"labels"] = ["cat"] * 20
    elif what == "pixels":
        content[b"data"] = content[b"data"][:, :3000]
    elif what == "type":
        content[b"data"] = content[b"data"].astype(np.float32)
    elif what == "fewer":
        content = {key: value[:15] for key, value in content.items()}
    elif what == "key":
        del content[b"labels"]
    path.write_bytes(pickle.dumps(content if what != "list" else [1, 2]))
    return path


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("truncated", "not a sound pickle"),
        ("empty", "not a sound pickle"),
        ("label", r"image 0 has label 10, not one of 0\.\.9"),
        ("labels", "20 images but 19 labels"),
        ("text", "not whole numbers"),
        ("pixels", "not rows of 3072 bytes"),
        ("type", "not rows of 3072 bytes"),
        ("fewer", "15 images, not 20: truncated"),
        ("key", "holds no labels"),
        ("list", "holds no labels"),
    ],
)
def test_bad_files(what: str, message: str, tmp_path: Path, tiny_root: Path) -> None:
    path = broken(made.make_cifar10(tmp_path), what)
    with pytest.raises(DataError, match=message) as caught:
        make_stream("split-cifar10", root=tmp_path)
    assert str(path) in str(caught.value)
    with pytest.warns(BadDataWarning, match="split-cifar10: left out 1 bad item"):
        stream = make_stream("split-cifar10", root=tmp_path, skip_bad=True)
    # A file that is bad as a whole is left out as a whole; one wrong label costs one image.
    assert sum(len(task.train) for task in stream) == (99 if what == "label" else 80)


@pytest.mark.parametrize(
    ("size", "message"),
    [(3073 * 20 - 1, "no whole number of records"), (0, "no whole number"), (3073 * 19, "19 images, not 20")],
)
def test_truncated_binary(size: int, message: str, tmp_path: Path) -> None:
    for name in (*SMALL10.train, *SMALL10.test):
        (tmp_path / f"{name}.bin").write_bytes(bytes(3073 * 20))
    (tmp_path / "data_batch_4.bin").write_bytes(bytes(size))
    with pytest.raises(DataError, match=rf"data_batch_4.bin: .*{message}"):
        read_cifar(tmp_path, strict(), SMALL10)


def test_nothing_left(tmp_path: Path, tiny_root: Path) -> None:
    (made.make_cifar100(tmp_path) / "train").write_bytes(b"junk")
    with pytest.raises(DataError, match="no sound file among train"):
        make_stream("split-cifar100", root=tmp_path, skip_bad=True)


def test_wrong_class_names(tmp_path: Path) -> None:
    folder = made.make_cifar10(tmp_path)
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"one"]}))
    with pytest.raises(DataError, match="1 class names, not 10"):
        read_cifar(folder, strict(), SMALL10)


def test_augmentation_is_the_papers(tiny_root: Path) -> None:
    augment = make_stream("split-cifar100", root=tiny_root).augment
    assert repr(augment).startswith("ShiftFlip(mean=(0.5071, 0.4867, 0.4408), std=(0.2675, 0.2565, 0.2761)")
    assert "padding=4, flip=0.5, brightness=0.247" in repr(augment)


def test_labels_that_would_spread_out_are_not_counted(tmp_path: Path) -> None:
    """Sixty lists of two, each the one before twice, would be 2^60 labels."""
    nested: list[Any] = [0, 1]
    for _ in range(60):
        nested = [nested, nested]
    folder = made.make_cifar10(tmp_path)
    for labels in (nested, np.zeros(20, np.float32), [True] * 20, "cat", [2**70] * 20):
        (folder / "data_batch_2").write_bytes(pickle.dumps({b"data": made.cifar_rows(20), b"labels": labels}))
        with pytest.raises(DataError, match=r"data_batch_2: (its labels are not whole numbers|not a sound pickle)"):
            read_cifar(folder, strict(), SMALL10)


def test_labels_may_be_an_array(tmp_path: Path) -> None:
    folder = made.make_cifar10(tmp_path)
    labels = (np.arange(20) % 10).astype(np.int32)
    (folder / "data_batch_2").write_bytes(pickle.dumps({b"data": made.cifar_rows(20), b"labels": labels}))
    assert np.array_equal(read_cifar(folder, strict(), SMALL10).labels, np.arange(120) % 10)


@pytest.mark.parametrize("names", [7, [1] * 10, [[b"a"]] * 10, {b"a": b"b"}])
def test_class_names_are_a_list_of_names(names: Any, tmp_path: Path) -> None:
    folder = made.make_cifar10(tmp_path)
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}))
    with pytest.raises(DataError, match=r"batches\.meta: its class names are no list of names"):
        read_cifar(folder, strict(), SMALL10)
