"""Streams in which every task has a head of its own: task-incremental learning."""

from __future__ import annotations

from dataclasses import replace

import torch

from tmln.streams.samples import Samples
from tmln.streams.stream import Stream, Task


def give_heads(stream: Stream) -> Stream:
    """Return the stream with a head for each task, chosen by identity in training and tests.

    A head has the task's classes; visits to the same task share it. Where tasks have classes in
    common, as domains do, labels are numbered head after head, and named ``task/class``.
    """
    groups = list(dict.fromkeys((task.domain, task.classes) for task in stream))
    for task in stream:
        if strange := set(task.train.classes) - set(task.classes):
            raise ValueError(
                f"{stream.name}: {task.name} has training samples of class {min(strange)} of another task, and with "
                "heads=per-task a sample's head is its task's: leave out blurry"
            )
    if stream.extra_tests:
        raise ValueError(f"{stream.name} is tested on samples of no task, which have no head: leave out heads=per-task")
    labels = [label for _, classes in groups for label in classes]
    if len(set(labels)) == len(labels):
        return replace(stream, heads=tuple(classes for _, classes in groups))
    heads: dict[tuple[str | None, tuple[int, ...]], tuple[int, ...]] = {}
    names: list[str] = []
    for group in groups:
        domain, classes = group
        heads[group] = tuple(range(len(names), len(names) + len(classes)))
        title = domain or f"head {len(heads)}"
        names += [f"{title}/{stream.class_names[label]}" for label in classes]
    tasks = tuple(_number_labels(task, heads[task.domain, task.classes]) for task in stream)
    return replace(stream, tasks=tasks, class_names=tuple(names), heads=tuple(heads.values()))


def _number_labels(task: Task, head: tuple[int, ...]) -> Task:
    """Return the task with its classes numbered as in its head."""
    table = torch.full((max(task.classes) + 1,), -1)
    table[list(task.classes)] = torch.tensor(head)

    def renumber(samples: Samples) -> Samples:
        return Samples(samples.source, table[samples.y], samples.rows)

    validation = None if task.validation is None else renumber(task.validation)
    return replace(task, train=renumber(task.train), test=renumber(task.test), classes=head, validation=validation)
