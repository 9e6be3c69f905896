"""Generate pages from files beside docs/: how to contribute, security, what changed."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {"CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}


def move_page(text: str) -> str:
    """Return a file of the root as a page of ``made/project``, its links included.

    >>> move_page("[a](docs/experiments.md#x), [b](SECURITY.md)")
    '[a](../../experiments.md#x), [b](security.md)'
    """
    text = re.sub(r"\]\(docs/", "](../../", text)
    return re.sub(r"\]\(([A-Z]+\.md)", lambda found: f"]({PAGES.get(found[1], found[1])}", text)


def pages() -> dict[Path, str]:
    """Return the pages by where they are made."""
    return {
        Path("project") / name: move_page((ROOT / file).read_text(encoding="utf-8")) for file, name in PAGES.items()
    }
