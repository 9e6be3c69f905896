"""The README in both forms: links of the repository lead to files, those of the package index are whole addresses."""

from __future__ import annotations

import re

import pytest
from readme_renderer import markdown

from tests.docs.blocks import ROOT
from tests.release.address import address
from tests.release.project import toml
from tmln.methods.registry import FAMILIES

README = (ROOT / "README.md").read_text(encoding="utf-8")
LINKED = re.compile(r'(?:href|src)="([^"#]+)')
LINKS = sorted({*LINKED.findall(markdown.render(README) or "")})
OTHERS = ("https://github.com/ContinualAI/", "https://github.com/aimagelab/", "https://github.com/G-U-N/")


def published() -> str:
    """The README as the build makes it for the package index."""
    text = README
    for rule in toml()["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    return text


SHOWN = markdown.render(published()) or ""


def test_it_renders_whole() -> None:
    assert SHOWN.count("<h2") == README.count("\n## ")
    assert SHOWN.count("<table") == 3
    assert SHOWN.count("<img") == 1
    assert SHOWN.count("<pre") == README.count("\n```") / 2


@pytest.mark.parametrize("link", LINKS)
def test_a_link_of_the_repository_leads_to_a_file(link: str) -> None:
    assert (ROOT / link).exists() or link.startswith(OTHERS)


def test_links_of_the_package_index_are_whole_addresses_of_the_same_files() -> None:
    """A page there has no neighbours."""
    found = {*LINKED.findall(SHOWN)}
    own = {link for link in found if not link.startswith(OTHERS)}
    whole = re.compile(rf"{re.escape(address())}/(?:blob|raw)/main/(.+)")
    assert all(whole.fullmatch(link) for link in own)
    assert sorted({whole.fullmatch(link)[1] for link in own}) == [  # type: ignore[index]
        link for link in LINKS if not link.startswith(OTHERS)
    ]
    assert [link for link in own if link.endswith(".png")] == [f"{address()}/raw/main/docs/pictures/forgetting.png"]


def test_code_is_not_rewritten() -> None:
    blocks = re.compile(r"^```.*?^```", re.M | re.S)
    assert blocks.findall(published()) == blocks.findall(README)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_component_is_a_member(family: str) -> None:
    (row,) = re.findall(rf"^\| {family} \|.*$", README, re.M)
    assert {*re.findall(r"`([^`]+)`", row)} == {*FAMILIES[family]}


def test_there_are_links() -> None:
    assert len(LINKS) > 20


def test_it_says_what_it_is_and_shows_no_badge_that_might_not_work() -> None:
    opening = README[: README.index("![")]
    assert all(term in opening for term in ("continual learning", "forgetting", "class-incremental"))
    assert "shields.io" not in README
    assert "badge" not in README
