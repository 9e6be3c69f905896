"""What is in a wheel and an sdist: ``python -m tests.release.contents dist`` says what is missing or too much.

A wheel is the package and nothing else, whole: every file of ``src/tmln`` with its assets and ``py.typed``. An sdist is
the repository without what belongs to its hosting: the wheel is built from it, and the tests run from it.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tests.release.project import ROOT, toml, version

BESIDE = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}  # in the wheel's own folder
ROOMS = ("src", "tests", "docs", "examples", "benchmarks")
PAPERS = (
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
)
NEEDED = (*PAPERS, "pyproject.toml", "Makefile", "constraints.txt")
NEVER = ("__pycache__", ".venv", ".git", ".github", ".ci", "runs", "site", "dist", "tmln-demo")


def package_files(root: Path = ROOT) -> set[str]:
    """``tmln/py.typed`` and all the others of the source, as they are named in a wheel."""
    source = root / "src"
    return {
        path.relative_to(source).as_posix()
        for path in (source / "tmln").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def faults_of_wheel(names: Iterable[str], expected: Iterable[str], about: str) -> list[str]:
    """``about`` is the wheel's own folder, ``tmln-0.2.0.dist-info``."""
    there, wanted = set(names), {*expected, *(f"{about}/{name}" for name in BESIDE)}
    return [f"missing: {name}" for name in sorted(wanted - there)] + [
        f"extra: {name}" for name in sorted(there - wanted)
    ]


def faults_of_sdist(names: Iterable[str], expected: Iterable[str], top: str) -> list[str]:
    """``top`` is the folder that everything is in, ``tmln-0.2.0``."""
    there = set(names)
    outside = [f"outside of {top}: {name}" for name in sorted(there) if not name.startswith(f"{top}/")]
    inside = {name.removeprefix(f"{top}/") for name in there}
    missing = [f"missing: {name}" for name in sorted({*expected, *NEEDED, "PKG-INFO"} - inside)]
    missing += [f"missing: {room}/" for room in ROOMS if not any(name.startswith(f"{room}/") for name in inside)]
    extra = [f"extra: {name}" for name in sorted(inside) if {*name.split("/")} & {*NEVER}]
    return outside + missing + extra


def faults_of_metadata(text: str) -> list[str]:
    """Say which links of the description lead nowhere on a page without neighbours."""
    links = re.findall(r"\]\(([^)\s]+)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    return [f"relative link: {link}" for link in links if not re.match(r"https://|#", link)]


def faults(folder: Path) -> list[str]:
    """Of the one wheel and the one sdist in a folder, for the version and the project of this source."""
    name = f"{toml()['project']['name']}-{version()}"
    wheel, sdist = folder / f"{name}-py3-none-any.whl", folder / f"{name}.tar.gz"
    found = sorted(path.name for path in folder.iterdir())
    if found != sorted([wheel.name, sdist.name]):
        return [f"{folder} has {', '.join(found) or 'nothing'}, not {wheel.name} and {sdist.name}"]
    with zipfile.ZipFile(wheel) as packed:
        said = faults_of_metadata(packed.read(f"{name}.dist-info/METADATA").decode())
        said += faults_of_wheel(packed.namelist(), package_files(), f"{name}.dist-info")
    with tarfile.open(sdist) as archive:
        names = [member.name for member in archive.getmembers() if not member.isdir()]
    source = {f"src/{file}" for file in package_files()}
    return [f"{wheel.name}: {fault}" for fault in said] + [
        f"{sdist.name}: {fault}" for fault in faults_of_sdist(names, source, name)
    ]


if __name__ == "__main__":
    told = faults(Path(sys.argv[1]))
    sys.exit("\n".join(told) if told else 0)
