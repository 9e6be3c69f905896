"""Type checkers and editors know the public names and refuse others, in tmln and in packages that load names late."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from mypy import api

from tests.release.project import ROOT

LATE = ["tmln", "tmln.methods", "tmln.streams", "tmln.experiments"]


def check(text: str, folder: Path) -> str:
    """What mypy says of a program; imports of other packages are not followed, which would take a minute."""
    (folder / "program.py").write_text(text, encoding="utf-8")
    files = [str(ROOT / "src" / name.replace(".", "/") / "__init__.py") for name in LATE]
    settings = folder / "mypy.ini"
    settings.write_text("[mypy]\nfollow_imports = silent\nignore_missing_imports = True\n", encoding="utf-8")
    words = ["--config-file", str(settings), "--cache-dir", str(folder / "cache"), "--no-site-packages"]
    return api.run([*words, *files, str(folder / "program.py")])[0]


def test_public_names_pass_and_others_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    good = [f"{home}.{name}" for home in LATE for name in importlib.import_module(home).__all__]
    wrong = ["tmln.Lerner", "tmln.methods.Stepp", "tmln.streams.make_steam", "tmln.experiments.Runn"]
    lines = [f"import {home}" for home in LATE] + good + wrong
    found = [line for line in check("\n".join(lines) + "\n", tmp_path).splitlines() if "program.py" in line]
    assert len(found) == len(wrong)
    for name, line in zip(wrong, found, strict=True):
        assert f'Module has no attribute "{name.rpartition(".")[2]}"' in line


@pytest.mark.parametrize("home", LATE)
def test_names_that_load_late_are_those_that_checkers_see(home: str) -> None:
    module = importlib.import_module(home)
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError, match=f"module '{home}' has no attribute 'Lerner'"):
        _ = module.Lerner


def test_completion_offers_the_public_names() -> None:
    tmln = importlib.import_module("tmln")
    assert {*tmln.__all__} <= {*dir(tmln)}
    with pytest.raises(AttributeError, match=r"it has TMLN, .*Learner"):
        _ = tmln.Lerner
