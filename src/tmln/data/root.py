"""Where data sets live: TMLN_DATA, else the platform's cache folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def data_root(
    root: Path | str | None = None, environment: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> Path:
    """``root`` where given, else ``TMLN_DATA``, else the platform's folder for caches; it need not exist."""
    if root is not None:
        return Path(root).expanduser()
    if environment.get("TMLN_DATA"):
        return Path(environment["TMLN_DATA"]).expanduser()
    home = Path.home()
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / "tmln"
    if platform == "darwin":
        return home / "Library" / "Caches" / "tmln"
    return Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "tmln"
