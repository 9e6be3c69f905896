"""Sphinx with what the extra ``docs`` brings and nothing else: ``python -m tests.docs.only_docs -b html docs site``.

The environment of the tests has all extras; what others bring cannot be imported here.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from packaging.utils import canonicalize_name

from tests.release.project import toml
from tests.release.test_bounds import EXTRAS, brings


class Refusing(importlib.abc.MetaPathFinder):
    """Refuses modules of these distributions."""

    def __init__(self, allowed: Iterable[str]) -> None:
        kept = {*allowed, "tmln", "pip", "setuptools"}
        owners = metadata.packages_distributions().items()
        self.refused = {top for top, names in owners if not kept & {canonicalize_name(name) for name in names}}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in self.refused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main() -> int:
    finder = Refusing(brings([*toml()["project"]["dependencies"], *EXTRAS["docs"]]))
    for name in [name for name in sys.modules if name.partition(".")[0] in finder.refused]:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    from sphinx.cmd.build import main as build

    return int(build(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
