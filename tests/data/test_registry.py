"""Finding, fetching, unpacking and checking data sets."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from tests.data import made
from tmln.data import DATA, BadData, DataError, DataSet, check_data, get_data, list_data, locate
from tmln.data.mnist import IDX_NAMES
from tmln.data.registry import find
from tmln.streams import make_stream

FETCHED = [name for name, data in DATA.items() if data.files]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address it is served at."""
    folder = tmp_path / "served"
    folder.mkdir()
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{http.server_address[1]}"
    http.shutdown()
    http.server_close()
    thread.join()


def packed(folder: Path, archive: Path) -> tuple[int, str]:
    with tarfile.open(archive, "w:gz") as tape:
        tape.add(folder, folder.name)
    data = archive.read_bytes()
    return len(data), hashlib.md5(data, usedforsecurity=False).hexdigest()


def pretend(monkeypatch: pytest.MonkeyPatch, archive: Path, url: str) -> DataSet:
    """CIFAR-100 as if its official archive were this one."""
    data = archive.read_bytes()
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    file = replace(DATA["cifar100"].files[0], urls=(f"{url}/{archive.name}",), size=len(data), md5=md5)
    changed = replace(DATA["cifar100"], files=(file,))
    monkeypatch.setitem(DATA, "cifar100", changed)
    return changed


def test_get_fetches_verifies_and_unpacks(
    served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_root: Path
) -> None:
    folder, url = served
    packed(made.make_cifar100(tmp_path / "made"), folder / "cifar-100-python.tar.gz")
    pretend(monkeypatch, folder / "cifar-100-python.tar.gz", url)
    root = tmp_path / "root"
    with pytest.raises(DataError, match="tmln data get cifar100"):
        make_stream("split-cifar100", root=root)
    assert get_data("cifar100", root) == root / "cifar-100-python"
    assert len(make_stream("split-cifar100", root=root)) == 10
    archive, copy = check_data("cifar100", root)
    assert (archive.what, archive.problem) == (str(root / "cifar-100-python.tar.gz"), None)
    assert "training has 300 images, not 50,000" in str(copy.problem)  # the checker goes by the official numbers


def test_an_archive_put_there_by_hand_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_root: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    packed(made.make_cifar100(tmp_path / "made"), root / "cifar-100-python.tar.gz")
    with pytest.raises(DataError, match=r"cifar-100-python.tar.gz: .* bytes, not 169,001,437"):
        locate("cifar100", root)  # not the official one
    pretend(monkeypatch, root / "cifar-100-python.tar.gz", "http://127.0.0.1:1")
    assert locate("cifar100", root) == root / "cifar-100-python"
    assert get_data("cifar100", root) == root / "cifar-100-python"


def test_nothing_is_fetched_without_being_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    for name in FETCHED:
        with pytest.raises(DataError):
            locate(name, tmp_path)
        assert next(iter(check_data(name, tmp_path))).problem is not None


def test_list(tiny_root: Path, tmp_path: Path) -> None:
    assert [status.name for status in list_data(tmp_path)] == list(DATA)
    for status in list_data(tmp_path):
        assert status.summary
        assert (status.path is None) == (status.name in FETCHED or bool(DATA[status.name].home))
        assert (status.bytes > 0) == (status.name in FETCHED)
    assert all(status.path is not None for status in list_data(tiny_root))


def test_data_root_from_the_environment(tiny_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMLN_DATA", str(tiny_root))
    assert len(make_stream("split-cifar10")) == 5
    assert tiny_root / "cifar-10-batches-py" in [status.path for status in list_data()]


@pytest.mark.parametrize("name", FETCHED)
def test_every_layout_of_every_data_set_is_found(name: str, tmp_path: Path) -> None:
    for number, (folder, names) in enumerate(DATA[name].layouts.items()):
        root = tmp_path / str(number)
        for entry in names[1:]:
            (root / folder / entry).mkdir(parents=True)
        assert find(DATA[name], root) is None  # one entry is missing yet
        (root / folder / f"{names[0]}.gz").touch()
        assert find(DATA[name], root) == root / folder


@pytest.mark.parametrize("name", FETCHED)
def test_every_data_set_can_be_read_and_told_from_the_real_one(name: str, tiny_root: Path) -> None:
    """The made copies are sound, but too small."""
    *_, copy = check_data(name, tiny_root)
    assert str(copy.problem).endswith(f"{DATA[name].unit}, not {next(iter(DATA[name].counts.values())):,}")


@pytest.mark.parametrize("name", FETCHED)
def test_a_whole_copy_is_read_to_its_last_image(name: str, tiny_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find(DATA[name], tiny_root)
    assert found is not None
    held = DATA[name].read(found, BadData(name, skip=False))
    monkeypatch.setitem(DATA, name, replace(DATA[name], counts=held.counts()))
    *_, copy = check_data(name, tiny_root)
    assert copy.problem is None
    assert f"{sum(held.counts().values()):,} {DATA[name].unit} in {len(held.class_names)} classes (" in copy.what


def test_what_ships_with_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (copy,) = check_data("digits", tmp_path)
    assert copy.problem is None
    assert "1,797 images in 10 classes (training 1,442, test 355)" in copy.what
    assert get_data("digits", tmp_path) == locate("digits")
    monkeypatch.setitem(DATA, "digits", replace(DATA["digits"], package="nowhere_to_be_found"))
    assert find(DATA["digits"], tmp_path) is None
    for ask in (locate, get_data):
        with pytest.raises(ImportError, match=r"pip install 'tmln\[digits\]'"):
            ask("digits", tmp_path)


def test_a_recompressed_file_is_only_noted(tmp_path: Path) -> None:
    folder = tmp_path / "MNIST" / "raw"
    made.make_idx(folder)
    for name, count in ((IDX_NAMES[0], 60_000), (IDX_NAMES[2], 10_000)):
        (folder / f"{name}.gz").write_bytes(gzip.compress(made.idx(np.zeros((count, 1, 1), np.uint8)), 1))
    for name, count in ((IDX_NAMES[1], 60_000), (IDX_NAMES[3], 10_000)):
        (folder / name).write_bytes(made.idx((np.arange(count) % 10).astype(np.uint8)))
    first, second, last = check_data("mnist", tmp_path)
    assert (first.problem, first.note) == (second.problem, second.note) == (None, "not the official bytes")
    assert last.problem is None
    assert "70,000 images in 10 classes (training 60,000, test 10,000)" in last.what


def test_a_bad_archive_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"half")
    first, last = check_data("cifar10", tmp_path)
    assert first.problem is not None
    assert "4 bytes, not 170,498,071" in first.problem
    assert last.problem is not None


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match=r"unknown data set 'cifar'; did you mean 'cifar10+'"):
        get_data("cifar")


def test_table_is_plausible() -> None:
    for data in DATA.values():
        for file in (*data.files, *data.alternatives):
            assert len(file.md5) == 32
            assert int(file.md5, 16)
            assert all(url.endswith(f"/{file.name}") for url in file.urls)
