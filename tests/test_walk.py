"""The walk of docs/architecture.md: every function that it names is there, and a run comes by it."""

from __future__ import annotations

import inspect
import re
import sys
import threading
from pathlib import Path
from pkgutil import resolve_name
from types import CodeType, FrameType
from typing import Any

import pytest
from typer.testing import CliRunner

from tmln.cli import app

DOCUMENT = Path(__file__).parents[1] / "docs" / "architecture.md"
WALK = DOCUMENT.read_text(encoding="utf-8").partition("## A walk through the house\n")[2].partition("\n## ")[0]
NAMES = sorted({name for name in re.findall(r"`([\w.]+)`", WALK) if "." in name and name != "room.module.function"})


def code_of(name: str) -> CodeType:
    """What runs when ``learner.loop.take_step`` is called: without decorators, and of a property what gets it."""
    owner: Any = resolve_name(f"tmln.{name.rpartition('.')[0]}")
    found = inspect.getattr_static(owner, name.rpartition(".")[2])
    found = getattr(found, "fget", None) or getattr(found, "__func__", found)
    code = inspect.unwrap(found).__code__
    assert isinstance(code, CodeType)
    return code


def test_a_run_comes_by_every_function_of_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {code_of(name): name for name in NAMES}
    assert len(wanted) > 40
    met: set[str] = set()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in wanted:
            met.add(wanted[frame.f_code])

    monkeypatch.chdir(tmp_path)
    before = sys.getprofile()
    sys.setprofile(look)
    threading.setprofile(look)
    try:
        chosen = ["--benchmark", "split-digits", "--method", "tmln", "--epochs", "1", "--checkpoint-steps", "20"]
        for command in (["run", *chosen, "--oracle", "none", "--workers", "1"], ["report", "runs", "-o", "page.html"]):
            done = CliRunner().invoke(app, command)
            assert done.exit_code == 0, done.output
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    assert {*NAMES} - met == set()
