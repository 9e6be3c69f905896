"""The README as PyPI shows it: it renders, its links are whole addresses, and what they name is in the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from readme_renderer import markdown

from tests.docs.blocks import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
SHOWN = markdown.render(README) or ""
LINKS = sorted({*re.findall(r'(?:href|src)="([^"#]+)', SHOWN)})
HOME = re.findall(r'^Repository = "https://github.com/(.+)"$', PROJECT, re.MULTILINE)[0]


def test_it_renders_whole() -> None:
    assert SHOWN.count("<h2") == README.count("\n## ")
    assert SHOWN.count("<table") == 2
    assert SHOWN.count("<img") == 1
    assert SHOWN.count("<pre") == README.count("\n```") / 2


@pytest.mark.parametrize("link", LINKS)
def test_a_link_leads_to_a_file_of_ours(link: str) -> None:
    found = re.fullmatch(rf"https://(?:github\.com/{HOME}/blob|raw\.githubusercontent\.com/{HOME})/main/(.+)", link)
    assert found, "a page on PyPI has no neighbours: write the whole address, as [project.urls] begins"
    assert (ROOT / found[1]).exists()


def test_there_are_links() -> None:
    assert len(LINKS) > 20
    assert Path("docs/pictures/forgetting.png").name in " ".join(LINKS)
