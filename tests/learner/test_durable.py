"""What is saved is on the disk before it takes the place of what was there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tmln.learner.checkpoint import load_file, save_file, write_checkpoint


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what is brought to the disk, and of what is moved into place, in turn."""
    said: list[str] = []
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def noted_sync(handle: int) -> None:
        said.append(f"sync {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")
        fsync(handle)

    def noted(move: Any) -> Any:
        def call(source: Any, target: Any) -> None:
            said.append(f"move {Path(source).name}")
            move(source, target)

        return call

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted(replace))
    monkeypatch.setattr(os, "rename", noted(rename))
    return said


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="names of open files are read from /proc")


@needs_proc
def test_a_saved_file_is_synced_before_it_replaces_the_old_one(tmp_path: Path, order: list[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    save_file(folder / "a.tmln", {"x": torch.ones(2)})
    writing = f".a.tmln.writing-{os.getpid()}"
    assert order == [f"sync {writing}", f"move {writing}", "sync folder"]
    assert load_file(folder / "a.tmln")["x"].tolist() == [1.0, 1.0]


@needs_proc
def test_a_checkpoint_is_synced_before_it_appears(tmp_path: Path, order: list[str]) -> None:
    write_checkpoint(tmp_path / "root", {"x": torch.ones(2)}, 3)
    at = order.index("move .writing-00000001")
    assert {*order[:at]} == {"sync tensors.safetensors", "sync state.json", "sync .writing-00000001"}
    assert order[at + 1] == "sync root"
