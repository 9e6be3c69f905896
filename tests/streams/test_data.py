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
from tmln.data import sources
from tmln.data.sources import DATA, IDX_NAMES, DataSet
from tmln.streams import DataError, check_data, get_data, list_data, make_stream
from tmln.streams.data import find, locate
from tmln.streams.readers import READERS


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
    monkeypatch.setitem(sources.DATA, "cifar100", changed)
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
    assert "300 images, not 50,000" in str(copy.problem)  # the checker goes by the official numbers


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
    for name in DATA:
        with pytest.raises(DataError):
            locate(name, tmp_path)
        assert next(iter(check_data(name, tmp_path))).problem is not None


def test_list(tiny_root: Path, tmp_path: Path) -> None:
    assert [status.name for status in list_data(tmp_path)] == list(DATA)
    assert all(status.path is None and status.bytes > 0 and status.summary for status in list_data(tmp_path))
    assert all(status.path is not None for status in list_data(tiny_root))


def test_data_root_from_the_environment(tiny_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMLN_DATA", str(tiny_root))
    assert len(make_stream("split-cifar10")) == 5
    assert list_data()[0].path == tiny_root / "cifar-10-batches-py"


@pytest.mark.parametrize("name", DATA)
def test_every_layout_of_every_data_set_is_found(name: str, tmp_path: Path) -> None:
    for number, layout in enumerate(DATA[name].layouts):
        root = tmp_path / str(number)
        for entry in layout.names[1:]:
            (root / layout.folder / entry).mkdir(parents=True)
        assert find(DATA[name], root) is None  # one entry is missing yet
        (root / layout.folder / f"{layout.names[0]}.gz").touch()
        assert find(DATA[name], root) == root / layout.folder


@pytest.mark.parametrize("name", DATA)
def test_every_data_set_can_be_read_and_told_from_the_real_one(name: str, tiny_root: Path) -> None:
    """The made copies are too small; CIFAR's numbers were set to what was made before its reader looked."""
    assert set(READERS) == set(DATA)
    checks = list(check_data(name, tiny_root))
    assert checks[-1].problem is not None
    assert "not " in checks[-1].problem or "others" in checks[-1].problem


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
    assert "60,000 training and 10,000 test images" in last.what


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
