"""The written pages, and the blocks of code and commands in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(path for path in sorted((ROOT / "docs").rglob("*.md")) if "made" not in path.parts)]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """What stands between two fences, and in which line that begins."""

    language: str
    code: str
    line: int


def blocks(text: str) -> list[Block]:
    """Of a page.

    >>> blocks("a\\n```python\\nx = 1\\n```\\n")
    [Block(language='python', code='x = 1\\n', line=3)]
    """
    return [Block(found[1], found[2], text[: found.start(2)].count("\n") + 1) for found in FENCE.finditer(text)]


def name_of(page: Path) -> str:
    """``docs/start/loop.md``."""
    return page.relative_to(ROOT).as_posix()


def commands(text: str) -> list[str]:
    """What is typed in the console blocks of a page, without comments; ``a && b`` are two."""
    lines = [line for block in blocks(text) if block.language == "console" for line in block.code.splitlines()]
    typed = [re.sub(r"\s+#\s.*", "", line.removeprefix("$ ")) for line in lines if line.startswith("$ ")]
    return [one for line in typed for one in line.split(" && ")]
