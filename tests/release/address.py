"""Where the repository is: ``python -m tests.release.address URL`` writes a new address into every file that has it.

``[project.urls] Repository`` of pyproject.toml is the address; a test compares the other files with it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.release.project import ROOT, toml

FILES = ("pyproject.toml", "CITATION.cff", ".github/ISSUE_TEMPLATE/config.yml")  # the only ones that may have it


def address() -> str:
    """Return the address of the repository."""
    found: str = toml()["project"]["urls"]["Repository"]
    return found


def change(old: str, new: str, root: Path = ROOT) -> None:
    """Write ``new`` in place of ``old`` into all files that have it."""
    if not re.fullmatch(r"https://[\w.-]+/[\w./-]*[\w-]", new):
        raise ValueError(f"{new!r} is no address of a repository: https://github.com/NAME/tmln, without / at the end")
    for name in FILES:
        path = root / name
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("which address? make address URL=https://github.com/NAME/tmln")
    try:
        change(address(), sys.argv[1])
    except ValueError as error:
        sys.exit(str(error))
