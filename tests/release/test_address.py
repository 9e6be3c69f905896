"""The repository's address is one constant; nothing in the checkout needs a folder beside it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.release.address import FILES, address, change
from tests.release.project import ROOT, toml


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_only_these_files_have_it_and_all_have_the_same() -> None:
    owner = address().rpartition("/")[0].encode()
    assert {path.relative_to(ROOT).as_posix() for path in tracked() if owner in path.read_bytes()} == {*FILES}
    for name in FILES:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert len(re.findall(re.escape(owner.decode()), text)) == len(re.findall(re.escape(address()), text))


def test_a_change_reaches_all(tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    change(address(), "https://example.org/me/tmln", tmp_path)
    assert all("https://example.org/me/tmln" in (tmp_path / name).read_text() for name in FILES)
    assert not any(address() in (tmp_path / name).read_text() for name in FILES)
    with pytest.raises(ValueError, match="without / at the end"):
        change(address(), "example.org/", tmp_path)


def test_every_address_of_the_project_begins_with_it() -> None:
    assert all(url.startswith(address()) for url in toml()["project"]["urls"].values())


def test_targets_need_nothing_outside_the_checkout() -> None:
    """``.ci/run`` may look for data in a folder beside it, and does without."""
    assert "../" not in (ROOT / "Makefile").read_text(encoding="utf-8")
    script = (ROOT / ".ci/run").read_text(encoding="utf-8") if (ROOT / ".ci/run").exists() else ""
    for name in re.findall(r"^(\w+)=\.\./", script, re.M):
        assert re.search(rf'\[ ! -f "?\${name}"? \]|&& \[ -f "?\${name}"? \]', script)
    assert script.count("../") <= 1 + len(re.findall(r"^\w+=\.\./", script, re.M)) + 1
