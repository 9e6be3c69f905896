"""What `make dist` notices of a wheel and an sdist, on made lists of names and on made archives."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.release import contents
from tests.release.contents import (
    BESIDE,
    NEEDED,
    ROOMS,
    faults,
    faults_of_metadata,
    faults_of_sdist,
    faults_of_wheel,
    package_files,
)
from tests.release.project import version

TOP = f"tmln-{version()}"
ABOUT = f"{TOP}.dist-info"
WHEEL = [*package_files(), *(f"{ABOUT}/{name}" for name in BESIDE)]
SDIST = [f"{TOP}/{name}" for name in (*(f"src/{file}" for file in package_files()), *NEEDED, "PKG-INFO")]
SDIST += [f"{TOP}/{room}/a" for room in ROOMS]


def test_a_relative_link_on_the_page_of_the_package_is_noticed() -> None:
    text = "# a\n[b](https://c.d/e), [f](#g)\n```python\nx[0](docs/h.md)\n```\n"
    assert faults_of_metadata(text) == []
    assert faults_of_metadata(f"{text}![i](docs/i.png)") == ["relative link: docs/i.png"]


def test_what_the_package_is_made_of() -> None:
    found = package_files()
    assert {"tmln/py.typed", "tmln/report/assets/page.html", "tmln/paper/chosen.json", "tmln/cli/app.py"} <= found
    assert not any("__pycache__" in name for name in found)


def test_a_whole_wheel_and_a_whole_sdist() -> None:
    assert faults_of_wheel(WHEEL, package_files(), ABOUT) == []
    assert faults_of_sdist(SDIST, (), TOP) == []


@pytest.mark.parametrize("lost", ["tmln/py.typed", "tmln/report/assets/main.js", f"{ABOUT}/licenses/LICENSE"])
def test_a_wheel_without(lost: str) -> None:
    assert faults_of_wheel({*WHEEL} - {lost}, package_files(), ABOUT) == [f"missing: {lost}"]


def test_a_wheel_with_more() -> None:
    assert faults_of_wheel([*WHEEL, "tests/zoo.py"], package_files(), ABOUT) == ["extra: tests/zoo.py"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([name for name in SDIST if name != f"{TOP}/LICENSE"], "missing: LICENSE"),
        ([name for name in SDIST if name != f"{TOP}/docs/a"], "missing: docs/"),
        ([*SDIST, f"{TOP}/.github/workflows/tests.yml"], "extra: .github/workflows/tests.yml"),
        ([*SDIST, "elsewhere"], f"outside of {TOP}: elsewhere"),
    ],
)
def test_an_sdist_that_is_not_right(names: list[str], said: str) -> None:
    assert faults_of_sdist(names, (), TOP) == [said]


def packed(folder: Path, names: list[str]) -> None:
    with zipfile.ZipFile(folder / f"{TOP}-py3-none-any.whl", "w") as wheel:
        for name in names:
            wheel.writestr(name, "")
    with tarfile.open(folder / f"{TOP}.tar.gz", "w:gz") as sdist:
        for name in SDIST:
            sdist.addfile(tarfile.TarInfo(name), io.BytesIO())


def test_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "has nothing, not tmln-" in faults(tmp_path)[0]
    packed(tmp_path, WHEEL)
    assert faults(tmp_path) == []
    monkeypatch.setattr(contents, "version", lambda: "9.9.9")
    assert "tmln-9.9.9-py3-none-any.whl" in faults(tmp_path)[0]
    monkeypatch.undo()
    packed(tmp_path, WHEEL[1:])
    assert faults(tmp_path) == [f"{TOP}-py3-none-any.whl: missing: {WHEEL[0]}"]
