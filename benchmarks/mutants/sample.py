"""List the mutants of a tree, the equivalent ones, and a sample that is stable under edits elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from benchmarks.mutants.operators import Mutant, mutants_of
from benchmarks.mutants.targets import sources

EQUIVALENT = Path(__file__).with_name("equivalent.yaml")
NAMES = ("file", "function", "before", "after")


def all_mutants(tree: Path) -> dict[str, list[Mutant]]:
    """Return the mutants of the files of each package."""
    return {
        package: [mutant for file in files for mutant in mutants_of((tree / file).read_text(encoding="utf-8"), file)]
        for package, files in sources(tree).items()
    }


def draw(packages: Mapping[str, Sequence[Mutant]], count: int | None, seed: int) -> list[tuple[str, Mutant]]:
    """Draw ``count`` mutants, one of each package in turn; all if None.

    The order within a package is that of hashes of (seed, mutant): a larger sample contains a smaller one, and
    an edit changes only the mutants that it adds or removes.
    """

    def place(mutant: Mutant) -> str:
        return hashlib.sha256(f"{seed}\n{mutant.key}".encode()).hexdigest()

    waiting = {package: sorted(mutants, key=place) for package, mutants in packages.items()}
    turns = range(max((len(mutants) for mutants in waiting.values()), default=0))
    drawn = [(package, mutants[turn]) for turn in turns for package, mutants in waiting.items() if turn < len(mutants)]
    return drawn[:count]


def read_equivalent(path: Path) -> dict[tuple[str, ...], str]:
    """Return (file, function, before, after) -> the reason why no test can detect the mutant."""
    rows = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    for row in rows:
        missing = [name for name in (*NAMES, "reason") if name not in row]
        if missing:
            raise ValueError(f"{path.name}: {row} lacks {', '.join(missing)}")
    return {tuple(row[name] for name in NAMES): row["reason"] for row in rows}


def name_of(mutant: Mutant) -> tuple[str, ...]:
    return tuple(getattr(mutant, name) for name in NAMES)
