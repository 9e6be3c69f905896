"""Are lower bounds what was tried? ``python -m tests.release.bounds pins.txt`` names those that are lower.

A bound that other packages do not allow is never installed by ``make test-lowest``, and so never tested: a promise that
nobody has kept. It is raised to what was installed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.release.project import toml

APART = {"avalanche", "mlflow", "fuzz", "dist"}  # extras in no other: `make test-lowest` does not install them


def declared() -> list[Requirement]:
    """What the package and those extras need that ``dev`` takes in, but not the tools of ``dev`` itself."""
    project = toml()["project"]
    extras = {name: of for name, of in project["optional-dependencies"].items() if name not in {*APART, "dev"}}
    found = [Requirement(line) for line in [*project["dependencies"], *(line for of in extras.values() for line in of)]]
    return [requirement for requirement in found if requirement.name != project["name"]]


def lower_bound(requirement: Requirement) -> Version:
    """
    >>> lower_bound(Requirement("numpy>=1.26"))
    <Version('1.26')>
    """
    bounds = [Version(said.version) for said in requirement.specifier if said.operator == ">="]
    if len(bounds) != 1:
        raise ValueError(f"{requirement}: say the lowest version that works, as in {requirement.name}>=1.0")
    return bounds[0]


def read_pins(text: str) -> dict[str, Version]:
    """
    >>> read_pins("NumPy==1.26.0\\nrich==13.0.0 ; sys_platform == 'linux'\\n# a note\\n")
    {'numpy': <Version('1.26.0')>, 'rich': <Version('13.0.0')>}
    """
    lines = (line.split("#")[0].split(";")[0].strip() for line in text.splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {canonicalize_name(name): Version(number) for name, number in pairs}


def untried(requirements: Iterable[Requirement], pins: Mapping[str, Version]) -> list[str]:
    """A line for each bound below what was installed; 1.26 and 1.26.0 are the same."""
    said = []
    for requirement in requirements:
        bound, pin = lower_bound(requirement), pins.get(canonicalize_name(requirement.name))
        if pin is None:
            said.append(f"{requirement.name}: not installed, so {requirement} is not tried")
        elif pin != bound:
            said.append(f"{requirement.name}: {bound} is promised, {pin} was tried: say {requirement.name}>={pin}")
    return sorted(set(said))


if __name__ == "__main__":
    told = untried(declared(), read_pins(Path(sys.argv[1]).read_text(encoding="utf-8")))
    sys.exit("\n".join(told) if told else 0)
