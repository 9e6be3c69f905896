"""The commit of tmln's own source, where it runs from a checkout."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from pathlib import Path

PATIENCE = 5.0  # seconds for git, which may be on a slow disk


@lru_cache(maxsize=1)
def commit() -> str:
    """Return the commit of tmln's own checkout, ``+changes`` if its files differ; empty if unknown.

    Cached for the process. An installed package inside another checkout, as in ``.venv``, has none.
    """
    return commit_of(Path(__file__).resolve().parents[1])


def commit_of(package: Path) -> str:
    """Return the commit of the checkout that tracks this package."""
    if not _git(package, "ls-files", "__init__.py"):
        return ""
    found = _git(package, "rev-parse", "HEAD")
    return f"{found}+changes" if found and _git(package, "status", "--porcelain", "--", ".") else found


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=PATIENCE
        )
    except (OSError, subprocess.SubprocessError):  # no git, no checkout, or not ours to read
        return ""
    return done.stdout.strip()
