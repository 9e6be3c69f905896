"""What a data set is: where it comes from, where it may lie, how it is read, and the arrays that reading gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tmln.data.bad_data import BadData

if TYPE_CHECKING:
    from tmln.data.image_files import ImageFiles

Colour: TypeAlias = tuple[float, ...]
"""One number a channel, or one for all."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """Images [N, H, W] or [N, H, W, C], in memory or mapped; of each its class, whether it tests, and its group.

    A group is what arrives together: a session, a domain, a folder. Where some images could not be read, ``rows`` are
    those of the others, and labels, roles and groups are theirs. ``folders`` number the folders that
    image files came from.
    """

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    tested: NDArray[np.bool_]
    class_names: tuple[str, ...]
    mean: Colour = (0.0,)
    std: Colour = (1.0,)
    groups: NDArray[np.int64] | None = None
    group_names: tuple[str, ...] = ()
    rows: NDArray[np.int64] | None = None
    folders: NDArray[np.int64] | None = None

    def counts(self) -> dict[str, int]:
        """How many images train and how many test."""
        return dict(Counter("test" if test else "training" for test in self.tested.tolist()))


def known(labels: NDArray[np.int64], classes: int, path: Path, bad: BadData) -> NDArray[np.bool_]:
    """Which labels are among 0..classes-1; each of the others is a complaint about the file."""
    right = (labels >= 0) & (labels < classes)
    for row in np.flatnonzero(~right).tolist():
        bad.add(path, f"image {row} has label {labels[row]}, not one of 0..{classes - 1}")
    return right


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set: it belongs into ``folder`` of the data root."""

    name: str
    urls: tuple[str, ...]
    size: int
    md5: str
    folder: str = ""

    @property
    def archive(self) -> bool:
        """Whether it is to be unpacked; a .gz alone is read as it is."""
        return self.name.endswith((".zip", ".tar.gz"))


@dataclass(frozen=True)
class DataSet:
    """One row of the table. Addresses are the official ones; sizes and MD5 sums were compared with public copies.

    ``layouts`` are the folders (ours, torchvision's, hand-made) that are recognised by what they hold, each name plain
    or with .gz at its end. ``counts`` is what a whole copy has. A set without files ships with a ``package``.
    """

    title: str
    summary: str
    read: Callable[[Path, BadData], Arrays | ImageFiles]
    counts: Mapping[str, int]
    files: tuple[RemoteFile, ...] = ()
    layouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    alternatives: tuple[RemoteFile, ...] = ()
    """archives that do as well when they are there, but are not fetched"""
    package: str = ""
    home: str = ""
    """where it can be asked for, if no file of it can be fetched"""
