"""Does a tag name the version of this source? ``python -m tests.release.version v0.2.0`` fails if not."""

from __future__ import annotations

import sys

from tests.release.project import version


def fault(tag: str, own: str) -> str:
    """Empty if all is well.

    >>> fault("v0.2.0", "0.2.0")
    ''
    """
    if tag == f"v{own}":
        return ""
    return f"the tag {tag} is not of version {own}: write v{own}, or change __version__ in src/tmln/__init__.py"


if __name__ == "__main__":
    sys.exit(fault(sys.argv[1], version()) or 0)
