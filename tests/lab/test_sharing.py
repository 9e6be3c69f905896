"""File systems that lack something: locks without links, what is missing by name, and doubts between machines."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tmln.lab import sharing
from tmln.lab.lock import RunLock, RunLocked
from tmln.lab.sharing import OBJECTS, check, kind_of, make_once, missing


def refuse(number: int) -> Callable[..., Any]:
    def call(*given: Any, **more: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return call


@pytest.fixture(params=[errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK])
def no_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As exFAT, some servers and some of FUSE answer."""
    monkeypatch.setattr(os, "link", refuse(request.param))


@pytest.mark.usefixtures("no_links")
def test_a_lock_without_links(tmp_path: Path) -> None:
    run = tmp_path / "run" / ".lock"
    with RunLock(run) as lock:
        with pytest.raises(RunLocked, match=rf"process {os.getpid()} on"):
            RunLock(run).acquire()
        lock.check()
    with RunLock(run):
        pass
    assert [path.name for path in run.iterdir()] == ["00000002"]
    assert missing(tmp_path) == []


def test_without_links_one_of_many_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", refuse(errno.EPERM))
    for number in range(20):
        together, won = threading.Barrier(8), list[int]()

        def race(mine: int, path: Path) -> None:
            together.wait()  # noqa: B023
            if make_once(path, str(mine)):
                won.append(mine)  # noqa: B023

        threads = [threading.Thread(target=race, args=(mine, tmp_path / str(number))) for mine in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert (tmp_path / str(number)).read_text() == str(won[0])


def test_a_server_that_did_it_and_says_it_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS: the answer was lost, the request is sent again, and meets its own work."""
    link = os.link

    def twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", twice)
    assert make_once(tmp_path / "lock", "mine")
    assert not make_once(tmp_path / "lock", "yours")
    assert (tmp_path / "lock").read_text() == "mine"


def test_what_was_there_may_be_gone_when_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def then_gone(aside: Path, path: Path) -> bool:
        path.unlink()
        return same(aside, path)

    same = os.path.samefile
    monkeypatch.setattr(os.path, "samefile", then_gone)
    (tmp_path / "lock").write_text("theirs")
    assert not make_once(tmp_path / "lock", "mine")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_missing_here_and_nothing_is_left(tmp_path: Path) -> None:
    assert missing(tmp_path) == []
    assert check(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []
    assert kind_of(Path("/proc/self")) == "proc"


def _any_flags(path: Any, flags: int, mode: int = 0o777, open_=os.open) -> int:  # type: ignore[no-untyped-def]
    return int(open_(path, flags & ~os.O_EXCL, mode))


@pytest.mark.parametrize(
    ("name", "broken", "said"),
    [
        ("open", _any_flags, "make a file exclusively"),
        ("listdir", lambda path: [], "list a file as soon as it is made"),
        ("replace", refuse(errno.EPERM), "replace a file by renaming"),
        ("rename", refuse(errno.ENOSYS), "rename a folder"),
        ("utime", lambda *given: None, "date a file that is touched"),
        ("lseek", refuse(errno.ESPIPE), "write within a file"),
    ],
)
def test_what_is_missing_is_named(
    name: str, broken: Callable[..., Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, name, broken)
    (found,) = missing(tmp_path)
    assert found.startswith(said)
    with pytest.raises(ValueError, match=rf"cannot hold runs: it does not {said}.*; choose another --out: .*NFS 3"):
        check(tmp_path)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_no_matter_of_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", refuse(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        missing(tmp_path)


def test_stores_of_objects_are_doubted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "kind_of", lambda folder: f"fuse.{OBJECTS[0]}")
    assert "locks between them do not hold" in check(tmp_path)


def test_a_lock_that_does_not_show_is_no_endless_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunLock, "_numbers", lambda lock: [])
    monkeypatch.setattr(os, "listdir", lambda path: [])
    with pytest.raises(ValueError, match="list a file as soon as it is made"):
        RunLock(tmp_path / ".lock").acquire()
