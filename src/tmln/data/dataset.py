"""What a data set is: its files, the folders it may lie in, its reader, and the arrays it gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tmln.data.reading import BadData

if TYPE_CHECKING:
    from tmln.data.image_files import ImageFiles
    from tmln.data.texts import Texts

Colour: TypeAlias = tuple[float, ...]
"""One number for each channel, or one for all."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """Images [N, H, W] or [N, H, W, C] in memory or mapped, each with a class, a role and a group.

    A group is what arrives together: a session, a domain, a folder. If some images could not be
    read, ``rows`` are the numbers of the others, and labels, roles and groups are those of
    ``rows``. ``folders`` numbers the folders that image files came from.
    """

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    is_test: NDArray[np.bool_]
    class_names: tuple[str, ...]
    mean: Colour = (0.0,)
    std: Colour = (1.0,)
    groups: NDArray[np.int64] | None = None
    group_names: tuple[str, ...] = ()
    rows: NDArray[np.int64] | None = None
    folders: NDArray[np.int64] | None = None

    def counts(self) -> dict[str, int]:
        """Return the number of training and of test images."""
        return dict(Counter("test" if test else "training" for test in self.is_test.tolist()))


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set; ``folder`` is its place below the data root."""

    name: str
    urls: tuple[str, ...]
    size: int
    md5: str
    folder: str = ""

    @property
    def archive(self) -> bool:
        """Return whether the file is to be unpacked; a .gz that is no archive is read as it is."""
        return self.name.endswith((".zip", ".tar.gz", ".tgz"))


@dataclass(frozen=True)
class DataSet:
    """One row of the table; sizes and MD5 sums were compared with public copies.

    ``layouts`` maps each folder that may hold a copy to the names of files in it by which it is
    recognised, with or without .gz. ``counts`` is the number of images in a whole copy. A data set
    without files is part of a ``package``.
    """

    title: str
    summary: str
    read: Callable[[Path, BadData], Arrays | ImageFiles | Texts]
    counts: Mapping[str, int]
    files: tuple[RemoteFile, ...] = ()
    layouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    alternatives: tuple[RemoteFile, ...] = ()
    """archives that are used if they are there, but are not downloaded"""
    package: str = ""
    home: str = ""
    """where to request the data set if no file of it can be downloaded"""
    unit: str = "images"
