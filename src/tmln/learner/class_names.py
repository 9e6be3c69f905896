"""Classes by name: an index never changes its meaning, whatever data comes in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import DataLoader

from tmln.streams.samples import Samples
from tmln.suggest import did_you_mean


def names_in(data: Any) -> tuple[str, ...] | None:
    """The names that a data set has for its labels, in ``classes``; a Subset's or a loader's are its data set's."""
    while isinstance(data, DataLoader) or (hasattr(data, "dataset") and not hasattr(data, "classes")):
        data = data.dataset
    found = getattr(data, "classes", None)
    if isinstance(data, Samples) or not isinstance(found, (list, tuple)) or not found:
        return None
    return tuple(found) if all(isinstance(name, str) for name in found) else None


def check_names(names: Sequence[str], known: Sequence[str] = ()) -> None:
    """Empty, twice, or another name but for upper and lower case: nobody could say which is meant."""
    folded = {name.casefold(): name for name in known}
    seen: set[str] = set()
    for name in names:
        if not name.strip():
            raise ValueError(f"a class has the name {name!r}; give it one that can be read")
        if name in seen:
            raise ValueError(f"the class {name!r} is there twice; name each once")
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            raise ValueError(
                f"the classes {other!r} and {name!r} differ in upper and lower case only; rename one of them"
            )
        seen.add(name)


def merged(known: Sequence[str], names: Sequence[str], met: Sequence[int] = ()) -> tuple[str, ...]:
    """The known names with the new ones behind them; classes that were met without a name are called by their number.

    >>> merged(("owl",), ("ant", "owl"))
    ('owl', 'ant')
    >>> merged((), ("ant",), met=(0, 1))
    ('0', '1', 'ant')
    """
    known = tuple(known) or tuple(str(label) for label in range(max(met, default=-1) + 1))
    check_names(names, known)
    return (*known, *(name for name in names if name not in known))


def by_name(samples: Samples, names: Sequence[str], known: Sequence[str]) -> Samples:
    """Labels that index ``names`` as labels that index ``known``."""
    highest = int(samples.y.max()) if len(samples) else -1
    if highest >= len(names):
        raise ValueError(f"label {highest}, but only {len(names)} class names: {', '.join(names)}")
    places = {name: index for index, name in enumerate(known)}
    for label in samples.classes:
        if names[label] not in places:
            raise ValueError(
                f"the class {names[label]!r} was never learned{did_you_mean(names[label], known)} "
                f"(classes: {', '.join(known) or 'none yet'})"
            )
    table = torch.tensor([places.get(name, -1) for name in names], dtype=torch.int64)
    return replace(samples, y=table[samples.y])


def check_numbers(samples: Samples, known: Sequence[str]) -> None:
    """Labels without names mean classes that the learner has; which others they would be, nobody has said."""
    highest = max(samples.classes, default=-1)
    if known and highest >= len(known):
        raise ValueError(
            f"label {highest}, but the learner has {len(known)} classes by name ({', '.join(known)}); say which "
            "classes the labels are, classes=[...]"
        )
