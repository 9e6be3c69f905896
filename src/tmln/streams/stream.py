"""A stream: a named sequence of tasks, each with training and test samples."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Generator, Tensor

from tmln.streams.samples import MappedSource, Samples, Source

Augment: TypeAlias = Callable[[Tensor, Generator], Tensor]
Prepare: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Task:
    """One task of a stream: the samples between two task boundaries.

    ``classes`` are the classes of its test set; blurry boundaries add others to ``train``.
    ``validation`` was taken from the training data; None unless requested.
    """

    name: str
    train: Samples
    test: Samples
    classes: tuple[int, ...]
    domain: str | None = None
    validation: Samples | None = None


SHOWN = 6  # classes of a task that are printed by name


@dataclass(frozen=True, eq=False, repr=False)
class Stream:
    """Tasks in order, under a single head over all classes, or a head for each task.

    A learner reads ``x, y = task.train.gather(indices)``, then calls ``stream.augment(x,
    generator)`` in training and ``stream.prepare(x)`` in tests: both return normalised float inputs
    of ``shape``. Labels are indices into ``class_names`` whatever the order in which classes
    arrive. ``metadata`` is part of a run's result.
    """

    name: str
    tasks: tuple[Task, ...]
    class_names: tuple[str, ...]
    shape: tuple[int, ...]
    augment: Augment
    prepare: Prepare
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    extra_tests: Mapping[str, Samples] = field(default_factory=dict)
    metadata: Mapping[str, object] = field(default_factory=dict)
    heads: tuple[tuple[int, ...], ...] = ()  # classes of each where every task has its own; empty for one head

    @property
    def classes(self) -> int:
        """Return the number of outputs of the single head."""
        return len(self.class_names)

    @property
    def tests(self) -> tuple[Samples, ...]:
        """Return one test set per task: the columns of the accuracy matrix."""
        return tuple(task.test for task in self.tasks)

    @property
    def has_texts(self) -> bool:
        """Return whether inputs are tokens of texts."""
        return self.tasks[0].train.gather(torch.arange(1))[0].dtype == torch.int32

    def as_pixels(self) -> Stream:
        """Return the stream with inputs in 0..1, not normalised: backbones normalise themselves."""
        plain: dict[str, Any] = {"mean": tuple(0.0 for _ in self.mean), "std": tuple(1.0 for _ in self.std)}
        changed: dict[str, Any] = {}
        for name in ("augment", "prepare"):
            transform: Any = getattr(self, name)
            if not (is_dataclass(transform) and {"mean", "std"} <= vars(transform).keys()):
                raise ValueError(
                    f"benchmark {self.name} prepares its inputs in its own way, and pixels from 0 to 1 are asked for, "
                    "by normalise=false or by a pre-trained backbone: choose another model, or another benchmark"
                )
            changed[name] = replace(transform, **plain)  # type: ignore[type-var]
        return replace(self, **plain, **changed)

    def seen(self, index: int) -> tuple[int, ...]:
        """Return the classes met up to task ``index``, which ``logit_mask=seen`` leaves open."""
        met: set[int] = set()
        for task in self.tasks[: index + 1]:
            met.update(task.classes, task.train.classes)
        return tuple(sorted(met))

    def __str__(self) -> str:
        """Return a short table for ``print(stream)``."""
        size, count = "x".join(map(str, self.shape)), len(self.tasks)
        lines = [f"{self.name}: {count} task{'s' * (count != 1)}, {self.classes} classes, inputs of {size}"]
        wide = max((len(task.name) for task in self.tasks), default=0)
        for task in self.tasks:
            names = [self.class_names[label] for label in task.classes[:SHOWN]]
            more = "" if len(task.classes) <= SHOWN else f", ... ({len(task.classes)})"
            counts = f"{len(task.train):>7,} to learn {len(task.test):>7,} to test"
            lines.append(f"  {task.name.ljust(wide)} {counts}  {', '.join(names)}{more}")
        return "\n".join(lines)

    __repr__ = __str__

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[index]


HASHED = 4  # images of each class in each test set: hashing all would read large sets once more


def describe_tests(stream: Stream) -> dict[str, object]:
    """Return for a run's result the fingerprint of the test sets and their numbers of classes."""
    return {"tests": fingerprint_tests(stream.tests), "test_classes": [len(task.classes) for task in stream]}


def fingerprint_tests(tests: tuple[Samples, ...]) -> str:
    """Return a hash of the test sets that does not depend on the order of classes or tasks.

    It covers the number of samples of each class in each test set and the first few of them as they
    are stored. Transforms follow from the benchmark's options; their last bits depend on the
    machine.
    """
    total = 0
    for samples in tests:
        for label in samples.classes:
            mine = (samples.y == label).nonzero().squeeze(1)
            images = _find_stored_source(samples.source).take(samples.rows[mine[:HASHED]])
            digest = hashlib.sha256(f"{label} {len(mine)} {images.dtype} {tuple(images.shape)}".encode())
            digest.update(images.cpu().contiguous().numpy().tobytes())
            total += int.from_bytes(digest.digest()[:8], "big")
    return f"{total % 2**64:016x}"


def _find_stored_source(source: Source) -> Source:
    return _find_stored_source(source.source) if isinstance(source, MappedSource) else source
