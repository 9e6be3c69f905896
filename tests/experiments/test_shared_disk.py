"""File systems that lack something: it is named, and so are doubts between machines."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tmln.experiments import shared_disk
from tmln.experiments.lock import RunLock
from tmln.experiments.shared_disk import OBJECTS, check, kind_of, missing


def refuse(number: int) -> Callable[..., Any]:
    def call(*given: Any, **more: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_a_file_system_without_locks_is_one_line(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Lustre without its option flock, some of FUSE, and NFS without a lock daemon answer."""
    monkeypatch.setattr(fcntl, "flock", refuse(number))
    with pytest.raises(ValueError, match=r"cannot hold runs: it does not lock a file .*; choose") as error:
        RunLock(tmp_path / "run" / ".lock").acquire()
    assert "\n" not in str(error.value)


def test_nothing_is_missing_here_and_nothing_is_left(tmp_path: Path) -> None:
    assert missing(tmp_path) == []
    assert check(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []
    assert kind_of(Path("/proc/self")) == "proc"


@pytest.mark.parametrize(
    ("name", "broken", "said"),
    [
        ("replace", refuse(errno.EPERM), "replace a file by renaming"),
        ("rename", refuse(errno.ENOSYS), "rename a folder"),
        ("flock", lambda *given: None, "lock a file"),
    ],
)
def test_what_is_missing_is_named(
    name: str, broken: Callable[..., Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl if name == "flock" else os, name, broken)
    (found,) = missing(tmp_path)
    assert found.startswith(said)
    with pytest.raises(ValueError, match=rf"cannot hold runs: it does not {said}.*; choose another --runs: "):
        check(tmp_path)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_no_matter_of_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", refuse(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        missing(tmp_path)


def test_stores_of_objects_are_doubted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_disk, "kind_of", lambda folder: f"fuse.{OBJECTS[0]}")
    assert "locks between machines do not hold" in check(tmp_path)
