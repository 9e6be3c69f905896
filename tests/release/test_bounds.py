"""Lower bounds are said, and those that were not tried are found; no extra but one brings torchvision."""

from __future__ import annotations

import re
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.release.bounds import APART, declared, lower_bound, read_pins, untried
from tests.release.project import toml

EXTRAS: dict[str, list[str]] = toml()["project"]["optional-dependencies"]


@pytest.mark.parametrize("requirement", declared(), ids=str)
def test_a_bound_is_said(requirement: Requirement) -> None:
    assert lower_bound(requirement) > Version("0")


def test_those_that_were_not_tried() -> None:
    pins = read_pins("a==1.2.0\nB_c==3.1  # via a\ntorch==2.13.0 ; sys_platform == 'linux'\n\n# end\n")
    assert untried(map(Requirement, ["a>=1.2", "b-c[x]>=3.1", "torch>=2.13"]), pins) == []
    assert untried(map(Requirement, ["a>=1.1", "d>=4", "a>=1.1"]), pins) == [
        "a: 1.1 is promised, 1.2.0 was tried: say a>=1.2.0",
        "d: not installed, so d>=4 is not tried",
    ]
    with pytest.raises(ValueError, match=r"a<2: say the lowest version that works, as in a>=1.0"):
        untried([Requirement("a<2")], pins)


def test_dev_takes_in_every_extra_but_those_apart() -> None:
    """Otherwise `make test-lowest` would not try them."""
    taken = {"dev"}
    for _ in EXTRAS:
        taken |= {
            name
            for extra in taken
            for line in EXTRAS[extra]
            if (requirement := Requirement(line)).name == "tmln"
            for name in requirement.extras
        }
    assert {*EXTRAS} - taken == APART


def brings(requirements: list[str]) -> set[str]:
    """All that these would install here, by the metadata of what is installed."""
    found: set[str] = set()
    todo = [Requirement(line) for line in requirements]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if name == "tmln":
            todo += [Requirement(line) for extra in requirement.extras for line in EXTRAS[extra]]
            continue
        wanted = {f"{name}[{extra}]" for extra in requirement.extras or {""}}
        if wanted <= found:
            continue
        found |= wanted
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # of another system, or not at hand: then its own needs are not known
            continue
        for line in lines:
            further = Requirement(line)
            if any(further.marker is None or further.marker.evaluate({"extra": e}) for e in requirement.extras or {""}):
                todo.append(further)
    return {re.sub(r"\[.*", "", name) for name in found}


@pytest.mark.parametrize("extra", sorted({*EXTRAS} - {"avalanche"}))
def test_an_extra_does_without_torchvision(extra: str) -> None:
    found = brings([*toml()["project"]["dependencies"], *EXTRAS[extra]])
    assert {"torch", "numpy", "jinja2"} <= found  # jinja2 is torch's own need: needs of needs are followed
    assert not {"torchvision", "torchaudio"} & found
