"""The commit of a package: of the checkout that tracks it, with a mark where it was changed, and of no other."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tmln.experiments.commit import commit_of


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True).stdout


def test_a_commit_is_of_the_checkout_that_tracks_the_package(tmp_path: Path) -> None:
    package = tmp_path / "src" / "pack"
    package.mkdir(parents=True)
    assert commit_of(package) == ""
    (package / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    (tmp_path / "README").write_text("")
    git(tmp_path, "add", "README")
    git(tmp_path, "commit", "-q", "-m", "one")
    assert commit_of(package) == ""  # in the checkout, but not of it
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "two")
    head = git(tmp_path, "rev-parse", "HEAD").strip()
    (tmp_path / "README").write_text("elsewhere")
    assert commit_of(package) == head
    (package / "__init__.py").write_text("x = 1")
    assert commit_of(package) == f"{head}+changes"
