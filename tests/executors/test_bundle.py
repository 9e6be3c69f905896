"""Runs as bytes: what is packed, in which order it is unpacked, and what is refused."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from tmln.executors import bundle
from tmln.executors.bundle import furthest, names_in, pack, unpack
from tmln.experiments.files import write_whole


def made(folder: Path) -> Path:
    for name, text in {
        "result.json": "{}",
        "config.yaml": "a: 1",
        "tensorboard/events": "e",
        "checkpoint/00000002-step-30/state.json": "s",
        ".lock/00000001": "mine",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_all_but_the_lock_and_the_result_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, written = pack(made(tmp_path / "run")), list[str]()

    def write(path: Path, data: bytes) -> None:
        written.append(path.name)
        write_whole(path, data)

    monkeypatch.setattr(bundle, "write_whole", write)
    unpack(packed, tmp_path / "there")
    assert written[-1] == "result.json"
    found = {
        path.relative_to(tmp_path / "there").as_posix() for path in (tmp_path / "there").rglob("*") if path.is_file()
    }
    assert found == set(names_in(packed))
    assert found == {
        "result.json",
        "config.yaml",
        "tensorboard/events",
        "checkpoint/00000002-step-30/state.json",
    }
    assert (tmp_path / "there/config.yaml").read_text() == "a: 1"


def test_some_files_or_none(tmp_path: Path) -> None:
    assert names_in(pack(made(tmp_path / "run"), ("config.yaml", "result.json"))) == ["config.yaml", "result.json"]
    assert pack(tmp_path / "nowhere") == b""
    assert names_in(b"") == []
    unpack(b"", tmp_path / "there")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil"])
def test_nothing_is_written_elsewhere(name: str, tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr(name, "x")
    with pytest.raises(ValueError, match="is no file of a run"):
        unpack(data.getvalue(), tmp_path / "there" / "run")
    assert not list(tmp_path.rglob("evil"))


def test_the_furthest_checkpoint_is_by_its_step() -> None:
    names = ["checkpoint/00000009-step-5/state.json", "checkpoint/00000002-step-30/state.json", "log.jsonl"]
    assert furthest(names) == 30
    assert furthest(["log.jsonl", "checkpoint/.writing-00000003/state.json"]) == -1
