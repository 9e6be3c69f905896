"""Write the generated pages into ``made/`` before Sphinx reads any."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docs.extensions import component_pages, internal_pages, paper_pages, project_pages, reference_pages, rows


def pages() -> dict[Path, str]:
    """Return all generated pages by their place in ``made/``."""
    internals = internal_pages.pages()
    packages = "\n".join(f"   {path.stem}" for path in internals)
    title = "Internals\n=========\n\nEvery name of every module, by packages, from the docstrings.\n"
    index = {Path("internals") / "index.rst": f"{title}\n.. toctree::\n   :maxdepth: 1\n\n{packages}\n"}
    written = component_pages.pages() | paper_pages.pages() | project_pages.pages() | reference_pages.pages()
    return written | internals | index | {Path("results.md"): rows.page()}


def write(folder: Path) -> None:
    """Write the pages that differ, and remove those that are no longer generated."""
    wanted = {folder / path: text for path, text in pages().items()}
    for old in [*folder.rglob("*.md"), *folder.rglob("*.rst")]:
        if old not in wanted:
            old.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def link_made(text: str, depth: int) -> str:
    """Point links at the generated page; in the file they point at what it is generated from.

    >>> link_made("[er](../../src/tmln/methods/recipes.py#made/methods/er.md)", 1)
    '[er](../made/methods/er.md)'
    """
    return re.sub(r"\]\([^)\s]*#(made/[^)\s]+)\)", lambda found: f"]({'../' * depth}{found[1]})", text)


def read_source(app: Any, name: str, source: list[str]) -> None:
    """Change the text of a page before it is parsed."""
    source[0] = link_made(source[0], name.count("/"))


def setup(app: Any) -> dict[str, bool]:
    """Register the generation before the builder looks for pages."""
    app.connect("config-inited", lambda app, config: write(Path(app.srcdir) / "made"))
    app.connect("source-read", read_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
