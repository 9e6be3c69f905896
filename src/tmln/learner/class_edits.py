"""Rename, merge and remove classes of a learner; :meth:`Learner.undo` takes each change back.

An index never changes its meaning, so the model keeps its rows. Of merged classes the lowest index
remains, the others have its name: the probability of a class is the sum over its rows. A removed
class has the name "" and is never predicted. Labels of the replay memory, of held-out samples and
of sums of heads in closed form follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tmln.learner.history import HeldOut, TaskNote, TaskRecord, count_accuracies, make_rows, measure_held_out
from tmln.learner.state import restore_on_error
from tmln.learner.task_data import check_names, merge_names
from tmln.methods.replay.reservoir import Reservoir
from tmln.suggest import did_you_mean

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

REMOVED = ""  # the name of a class that was removed


def find_aliases(names: Sequence[str]) -> dict[int, list[int]]:
    """Return the indices of further rows of merged classes, by the index that remains.

    >>> find_aliases(("ant", "bee", "ant", ""))
    {0: [2]}
    """
    found: dict[int, list[int]] = {}
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name != REMOVED and first.setdefault(name, index) != index:
            found.setdefault(first[name], []).append(index)
    return found


def is_closed(names: Sequence[str], label: int) -> bool:
    """Return whether a class was removed, or merged into one of a lower index."""
    return label < len(names) and (names[label] == REMOVED or names.index(names[label]) != label)


def combine_scores(scores: Tensor, names: Sequence[str]) -> Tensor:
    """Return scores whose softmax, at the remaining index of merged classes, is their sum.

    >>> combine_scores(torch.tensor([[0.0, 0.0, 0.0]]), ("ant", "bee", "ant"))
    tensor([[0.6931, 0.0000, 0.0000]])
    """
    for index, others in find_aliases(names).items():
        whole = scores[:, [index, *others]].logsumexp(1, keepdim=True)
        scores = torch.cat([scores[:, :index], whole, scores[:, index + 1 :]], 1)
    return scores


def rename_class(learner: Learner, old: str, new: str) -> None:
    """Give a class another name."""
    with _editing(learner) as names:
        label = _find(names, old)
        if new == old:
            raise ValueError(f"the class has the name {new!r} already")
        if new in names:
            raise ValueError(f"there is a class {new!r}: merge {old!r} into it, or choose another name")
        check_names([new], [name for name in names if name != old])
        learner.names = tuple(new if name == names[label] else name for name in names)
        record = learner.seen.record
        rows = tuple(replace(row, label=new if row.label == old else row.label) for row in record.rows)
        learner.seen.record = replace(record, rows=rows)


def merge_classes(learner: Learner, sources: Sequence[str], target: str) -> None:
    """Make one class of several, called ``target``, which is one of the classes."""
    with _editing(learner) as names:
        labels = sorted({_find(names, name) for name in (*sources, target)})
        if len(labels) < 2:
            raise ValueError(f"merge other classes into {target!r}; got {', '.join(sources) or 'none'}")
        merged = {names[label] for label in labels}
        learner.names = tuple(target if name in merged else name for name in names)
        relabel(learner, dict.fromkeys(labels[1:], labels[0]))


def remove_classes(learner: Learner, removed: Sequence[str]) -> None:
    """Never predict these classes again, and drop their samples."""
    with _editing(learner) as names:
        labels = sorted({_find(names, name) for name in removed})
        left = set(learner.classes) - set(labels)
        if not labels or not left:
            raise ValueError(f"no class would be left of {', '.join(removed) or 'none'}: begin another state")
        gone = {names[label] for label in labels}
        learner.names = tuple(REMOVED if name in gone else name for name in names)
        relabel(learner, dict.fromkeys(labels, None))


def relabel(learner: Learner, into: Mapping[int, int | None]) -> None:
    """Let all labels follow, but those of the model's rows: to another class, or None."""
    learner.meet({label for old in learner.classes if (label := into.get(old, old)) is not None})
    for component in learner.components.values():
        component.relabel(into)
    step = learner.step
    memories = {id(m): m for name in ("memory", "checks") if isinstance(m := getattr(step, name, None), Reservoir)}
    for memory in memories.values():
        if memory is not learner.replay.memory:
            memory.relabel(into)
    seen = learner.seen
    for index, samples in enumerate(seen.history):
        stays, y = _follow(samples.y, into)
        seen.history[index] = replace(samples.subset(stays), y=y)
    seen.record = _relabel_record(seen.record, into)
    right, evidence = measure_held_out(learner, seen.record)
    rows = make_rows(seen.record, learner.names, [], count_accuracies(seen.record, right))
    seen.record = replace(seen.record, rows=rows, evidence=evidence)


def _relabel_record(record: TaskRecord, into: Mapping[int, int | None]) -> TaskRecord:
    tasks: list[TaskNote] = []
    held: list[HeldOut | None] = []
    for note, samples in zip(record.tasks, record.held, strict=True):
        counts: dict[int, int] = {}
        for old, count in note.counts.items():
            if (label := into.get(old, old)) is not None:
                counts[label] = counts.get(label, 0) + count
        new = tuple(sorted({label for old in note.new if (label := into.get(old, old)) is not None}))
        tasks.append(replace(note, counts=counts, new=new))
        stays, y = _follow(torch.zeros(0, dtype=torch.int64) if samples is None else samples.y, into)
        features = None if samples is None or samples.features is None else samples.features[stays]
        held.append(None if samples is None or not len(y) else HeldOut(samples.x[stays], y, features))
    return TaskRecord(tuple(tasks), tuple(held))


def _follow(y: Tensor, into: Mapping[int, int | None]) -> tuple[Tensor, Tensor]:
    """Return the rows that stay, and their labels."""
    found = [into.get(label, label) for label in y.tolist()]
    stays = torch.tensor([row for row, label in enumerate(found) if label is not None], dtype=torch.int64)
    return stays, torch.tensor([label for label in found if label is not None], dtype=torch.int64)


def _find(names: Sequence[str], name: str) -> int:
    if name == REMOVED or name not in names:
        known = dict.fromkeys(known for known in names if known != REMOVED)
        raise ValueError(f"no class {name!r}{did_you_mean(name, known)} (classes: {', '.join(known) or 'none yet'})")
    return names.index(name)


@contextmanager
def _editing(learner: Learner) -> Iterator[tuple[str, ...]]:
    """Yield the names; restore the learner if the block fails, and let it be undone else."""
    if learner.position.within is not None:
        raise RuntimeError("a task is under way: end it, and change classes then")
    if learner.heads:
        raise ValueError("every task has a head of its own (heads=): their classes cannot be changed")
    seen, record, history = learner.seen, learner.seen.record, list(learner.seen.history)
    try:
        with restore_on_error(learner) as before:
            yield learner.names or merge_names((), (), learner.classes)
    except BaseException:
        seen.record, seen.history = record, history
        raise
    seen.refused = None
    if learner.keep:
        seen.previous = [*seen.previous, (before, record)][-learner.keep :]
