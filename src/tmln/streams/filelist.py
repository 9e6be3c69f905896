"""Labelled image files, chosen before they are read, then read once: what folders of images become."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tmln.data.bad import BadData
from tmln.streams.imagestore import Reader, load_images
from tmln.streams.samples import Samples, evenly


@dataclass(frozen=True)
class ImageFile:
    """One file, its class, the group it arrives with (a task, a session), and whether it tests or trains."""

    path: Path
    label: int
    group: int = 0
    test: bool = False


@dataclass(frozen=True, eq=False)
class Labelled:
    """All files as samples, with the group and the role of each."""

    samples: Samples
    groups: Tensor
    tested: Tensor

    def part(self, test: bool, groups: Sequence[int] | None = None) -> Samples:
        """The training or the test samples, of some groups or of all."""
        wanted = self.tested == test
        if groups is not None:
            wanted = wanted & torch.isin(self.groups, torch.tensor(groups))
        return self.samples.subset(wanted.nonzero().squeeze(1))


def chosen(files: Sequence[ImageFile], per_class: int | None, per_class_test: int | None) -> list[ImageFile]:
    """At most so many files of each class in each group, evenly spaced."""
    kinds: dict[tuple[int, int, bool], list[ImageFile]] = defaultdict(list)
    for file in files:
        kinds[file.group, file.label, file.test].append(file)
    return [
        members[index]
        for (_, _, test), members in kinds.items()
        for index in evenly(len(members), per_class_test if test else per_class)
    ]


def load_files(
    files: Sequence[ImageFile], read: Reader, bad: BadData, cache: Path, limit: int | None = None
) -> Labelled:
    """Read all files; those the complaints let pass are left out."""
    source, kept = load_images([file.path for file in files], read, bad, cache, limit)
    sound = [files[row] for row in kept.tolist()]
    samples = Samples(source, torch.tensor([file.label for file in sound]), kept)
    groups = torch.tensor([file.group for file in sound])
    return Labelled(samples, groups, torch.tensor([file.test for file in sound]))
