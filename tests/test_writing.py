"""A write that fails: which file, why, what to do, whatever wrote it; and nothing half written stays behind.

RLIMIT_FSIZE stands for a disk without room: Python ignores the signal of it, and writes fail.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.golden.fingerprints import FIXTURES
from tmln import Learner
from tmln.analysis.published import publish
from tmln.analysis.read import read_results
from tmln.data.extract import unpack
from tmln.experiments.files import make_folder, write_whole
from tmln.experiments.lock import RunLock
from tmln.experiments.store import append_line, read_lines
from tmln.learner.checkpoint import read_newest, write_checkpoint
from tmln.report.page import write_report
from tmln.writing import CannotWrite, writing


@contextmanager
def room(size: int) -> Iterator[None]:
    """No file may grow past so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full .*; make room there"),
        (errno.EROFS, "the file system is read-only .*; make it writable"),
        (errno.EACCES, "this user may not write there .*; change its permissions"),
        (errno.EBADF, "the system refuses"),
    ],
)
def test_the_file_the_reason_and_the_remedy(number: int, words: str) -> None:
    with (
        pytest.raises(CannotWrite, match=rf"^cannot write there/x: {words}.*do the same again") as met,
        writing("there/x"),
    ):
        raise OSError(number, os.strerror(number), "there/.x.aside")
    assert met.value.errno == number
    assert met.value.everywhere == (number in (errno.ENOSPC, errno.EROFS))


def test_of_writes_within_each_other_the_outer_one_is_named() -> None:
    with pytest.raises(CannotWrite, match=r"^cannot write outer: the disk is full"), writing("outer"), writing("inner"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(KeyError), writing("x"):
        raise KeyError("x")


STATE = {"x": torch.ones(20_000)}
WRITES: dict[str, Callable[[Path], Any]] = {
    "a checkpoint's tensors": lambda folder: write_checkpoint(folder, STATE, 1),
    "a checkpoint's numbers": lambda folder: write_checkpoint(folder, {"n": list(range(20_000))}, 1),
    "a state": lambda folder: Learner(torch.nn.Linear(400, 20)).save(folder / "model.tmln"),
    "a small file": lambda folder: write_whole(folder / "result.json", "x" * 20_000),
    "a line of the log": lambda folder: append_line(folder / "log.jsonl", {"step": 1, "text": "x" * 20_000}),
    "a report": lambda folder: write_report(FIXTURES / "published.json", folder / "page.html"),
    "a published file": lambda folder: publish(read_results(FIXTURES / "published.json")[0], folder / "results.json"),
}


@pytest.mark.parametrize("size", [0, 1000])
@pytest.mark.parametrize("name", WRITES)
def test_without_room_nothing_stays_behind_and_later_it_goes_on(name: str, size: int, tmp_path: Path) -> None:
    with room(size), pytest.raises(CannotWrite, match=rf"^cannot write {tmp_path}/[^.].*ulimit -f"):
        WRITES[name](tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.stat().st_size and path.is_file()] == []
    WRITES[name](tmp_path)


def test_without_room_the_old_ones_are_whole(tmp_path: Path) -> None:
    append_line(tmp_path / "log.jsonl", {"step": 1})
    write_checkpoint(tmp_path / "checkpoint", STATE, 1)
    write_whole(tmp_path / "small", "old")
    results = read_results(FIXTURES / "published.json")[0]
    for write in (
        lambda: write_report(FIXTURES / "published.json", tmp_path / "small"),
        lambda: publish(results, tmp_path / "small"),
        lambda: append_line(tmp_path / "log.jsonl", {"step": 2, "text": "x" * 100}),
        lambda: write_checkpoint(tmp_path / "checkpoint", STATE, 2),
        lambda: write_whole(tmp_path / "small", "new" * 100),
    ):
        with room(40), pytest.raises(CannotWrite):
            write()
    append_line(tmp_path / "log.jsonl", {"step": 3})
    assert read_lines(tmp_path / "log.jsonl") == [{"step": 1}, {"step": 3}]
    found = read_newest(tmp_path / "checkpoint")
    assert found is not None
    assert found[1] == 1
    assert (tmp_path / "small").read_text() == "old"


def test_a_lock_can_be_given_back_on_a_full_disk(tmp_path: Path) -> None:
    with RunLock(tmp_path / "run" / ".lock") as lock, room(0):
        lock.release()
    with room(10), pytest.raises(CannotWrite, match=rf"^cannot write {tmp_path}/run: "):
        RunLock(tmp_path / "run" / ".lock").acquire()
    with RunLock(tmp_path / "run" / ".lock"):  # whoever could not say that it holds the lock does not
        pass
    assert sorted(path.name for path in (tmp_path / "run" / ".lock").iterdir()) == ["held", "owner"]


def test_what_was_being_done_is_told_not_that_its_lock_cannot_be_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder became read-only under way."""

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", ".lock")

    def work() -> None:
        with RunLock(tmp_path / "run" / ".lock"):
            monkeypatch.setattr("os.open", refuse)
            with writing(tmp_path / "run" / "checkpoint"):
                raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(CannotWrite, match="run/checkpoint: this user may not write there"):
        work()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotWrite, match="what should be its folder is a file"):
        make_folder(tmp_path / "file" / "folder")


def test_an_archive_is_not_blamed_for_a_full_disk(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "x.zip", "w") as pack:
        pack.writestr("data/x.bin", b"x" * 5000)
    with room(1000), pytest.raises(CannotWrite, match=rf"^cannot write {tmp_path}/into/data/x.bin"):
        unpack(tmp_path / "x.zip", tmp_path / "into")
    unpack(tmp_path / "x.zip", tmp_path / "into")
