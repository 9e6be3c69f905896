"""What must hold of every stream: each task has training and test samples of each of its classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tmln.data.bad import BadData
from tmln.streams.samples import of_classes
from tmln.streams.stream import Task


def complete(tasks: Sequence[Task], class_names: Sequence[str], bad: BadData) -> tuple[Task, ...]:
    """The tasks, checked; a class without training or without test samples is a complaint, then left out."""
    checked = []
    for task in tasks:
        trained, tested = set(task.train.classes), set(task.test.classes)
        classes = []
        for label in task.classes:
            where = f"{task.name}, class {class_names[label]!r}"
            if label not in trained:
                bad.add(where, "no training samples")
            elif label not in tested:
                bad.add(where, "missing from the task's test set")
            else:
                classes.append(label)
        if len(classes) < len(task.classes):
            train, test = of_classes(task.train, classes), of_classes(task.test, classes)
            task = replace(task, train=train, test=test, classes=tuple(classes))
        if classes:
            checked.append(task)
        else:
            bad.add(task.name, "no class with training and test samples")
    return tuple(checked)
