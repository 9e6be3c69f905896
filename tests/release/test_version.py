"""One version in one place, and what repeats it agrees; one oldest Python, wherever it is named."""

from __future__ import annotations

import re
from datetime import date

import yaml

import tmln
from tests.release.project import ROOT, targets, toml, version
from tests.release.version import fault

PROJECT = toml()["project"]
CHANGES = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
RELEASES = [heading for heading in CHANGES if heading != "Unreleased"]


def test_the_package_reads_it_where_it_stands() -> None:
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version", "readme"]
    assert toml()["tool"]["hatch"]["version"] == {"path": "src/tmln/__init__.py"}
    assert tmln.__version__ == version()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version())


def test_the_changelog_begins_with_it() -> None:
    """What is new since then may be above it, as Unreleased."""
    assert CHANGES[:-1] == RELEASES or CHANGES[1:] == RELEASES or CHANGES == RELEASES
    newest, when = RELEASES[0].split(", ")
    assert newest == version()
    assert date.fromisoformat(when).isoformat() == when


def test_the_citation_is_of_it() -> None:
    said = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert said["version"] == version()
    assert f"{said['version']}, {said['date-released']}" == RELEASES[0]


def test_the_readme_cites_it() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"version = \{(.+?)\}", text) == [version()]
    assert f"Version {version().rpartition('.')[0]}, " in text


def test_a_tag_must_name_it() -> None:
    assert fault("v1.2.3", "1.2.3") == ""
    assert "write v1.2.3, or change __version__" in fault("v1.2.4", "1.2.3")
    assert fault("1.2.3", "1.2.3")


def test_the_oldest_python_is_the_same_everywhere() -> None:
    oldest = PROJECT["requires-python"].removeprefix(">=")
    listed = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert listed[0] == oldest
    assert listed == [f"3.{10 + number}" for number in range(len(listed))]
    assert toml()["tool"]["mypy"]["python_version"] == oldest
    assert "target-version" not in toml()["tool"]["ruff"]  # ruff reads requires-python
    assert any(f"vermin --quiet --no-tips --violations --target={oldest}- src" in line for line in targets()["lint"])
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert makefile.count(f"Python >= {oldest}") == 2
    assert f"Python >= {oldest}" in (ROOT / "README.md").read_text(encoding="utf-8")
