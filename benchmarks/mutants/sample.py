"""All mutants of a tree, those that nobody can notice, and a sample that stays the same while other code changes."""

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
    """Room -> the mutants of its files."""
    return {
        package: [mutant for file in files for mutant in mutants_of((tree / file).read_text(encoding="utf-8"), file)]
        for package, files in sources(tree).items()
    }


def draw(packages: Mapping[str, Sequence[Mutant]], count: int | None, seed: int) -> list[tuple[str, Mutant]]:
    """``count`` mutants, one of each package in turn; all if None.

    A package's order is that of hashes of (seed, mutant), so that a larger sample holds a smaller one and an edit moves
    only the mutants it makes or removes.
    """

    def place(mutant: Mutant) -> str:
        return hashlib.sha256(f"{seed}\n{mutant.key}".encode()).hexdigest()

    waiting = {package: sorted(mutants, key=place) for package, mutants in packages.items()}
    turns = range(max((len(mutants) for mutants in waiting.values()), default=0))
    drawn = [(package, mutants[turn]) for turn in turns for package, mutants in waiting.items() if turn < len(mutants)]
    return drawn[:count]


def read_equivalent(path: Path) -> dict[tuple[str, ...], str]:
    """(file, function, before, after) -> why no test can notice it."""
    rows = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    for row in rows:
        missing = [name for name in (*NAMES, "reason") if name not in row]
        if missing:
            raise ValueError(f"{path.name}: {row} lacks {', '.join(missing)}")
    return {tuple(row[name] for name in NAMES): row["reason"] for row in rows}


def name_of(mutant: Mutant) -> tuple[str, ...]:
    return tuple(getattr(mutant, name) for name in NAMES)
