"""What lies beside docs/ and belongs to the site: how to contribute, security, what changed. Links follow."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {"CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}


def moved(text: str) -> str:
    """A page of the root as one of ``made/house``.

    >>> moved("[a](docs/experiments.md#x), [b](SECURITY.md)")
    '[a](../../experiments.md#x), [b](security.md)'
    """
    text = re.sub(r"\]\(docs/", "](../../", text)
    return re.sub(r"\]\(([A-Z]+\.md)", lambda found: f"]({PAGES.get(found[1], found[1])}", text)


def pages() -> dict[Path, str]:
    """By where they are made."""
    return {Path("house") / name: moved((ROOT / file).read_text(encoding="utf-8")) for file, name in PAGES.items()}
