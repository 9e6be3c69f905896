"""Small files: on the disk before they have a name, readable everywhere, and nothing left behind."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tmln.experiments import files
from tmln.writing import sync_path


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    sync, replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        kind = "folder" if os.path.samestat(os.fstat(handle), tmp_path.stat()) else "file"
        done.append((kind, handle, os.fstat(handle).st_size))
        sync(handle)

    def moved(source: Path, target: Path) -> None:
        done.append(("name", target.name, None))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", moved)
    files.write_whole(tmp_path / "a", "words")
    assert [what for what, _, _ in done] == ["file", "name", "folder"]
    assert done[0][2] == 5  # all of it, not what had left the buffer
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(done[2][1])  # the folder was closed again
    assert (tmp_path / "a").read_text() == "words"


def test_a_failure_leaves_the_old_text_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_whole(tmp_path / "a", "old")

    def full(handle: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        files.write_whole(tmp_path / "a", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_folders_are_not_opened_where_that_cannot_be_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        patch.setattr(os, "open", pytest.fail)
        sync_path(tmp_path)


def test_text_is_utf8_whatever_the_locale(tmp_path: Path) -> None:
    code = "import pathlib, runpy, sys; runpy.run_path(sys.argv[1])['write_whole'](pathlib.Path(sys.argv[2]), '\\xe4')"
    plain = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    subprocess.run([sys.executable, "-c", code, files.__file__, str(tmp_path / "a")], env=plain, check=True)
    assert (tmp_path / "a").read_bytes() == b"\xc3\xa4"


def test_json_of_what_is_not_a_number() -> None:
    value = {1: (math.nan, [math.inf, 0.5]), "a": {"b": -math.inf, "c": None, "d": 3, "e": True}}
    assert json.loads(files.to_json(value)) == {
        "1": [None, [None, 0.5]],
        "a": {"b": None, "c": None, "d": 3, "e": True},
    }
    assert files.to_json({"a": [1.5]}) == '{"a": [1.5]}'
    assert files.to_json({"a": 1}, indent=2) == '{\n  "a": 1\n}'
