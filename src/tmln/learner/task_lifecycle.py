"""A lesson: a task with its names, the room it needs in the head, and what it gave and cost."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tmln.learner.growth import make_room
from tmln.learner.loop import learn_task
from tmln.learner.prepare_task import Taken
from tmln.learner.retention import Forgot, judge, plain_rows, retention_of
from tmln.learner.state import restore_state
from tmln.learner.task_history import LessonNote, Record, counted, now, overlap

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

OnStep = Callable[[int, int, float], None]


def learn_lesson(
    learner: Learner, taken: Taken, epochs: int, boundary: bool, on_step: OnStep | None, most: float | None
) -> None:
    """The learner learns what was taken, and notes what that did to what it knew."""
    record = _with(learner, taken) if boundary else learner.record
    known = learner.classes
    if learner.place is None:
        learner.earlier = judge(learner, replace(record, held=record.held[:-1])) if _judged(record) else None
        learner.names = taken.names
        labels = (*taken.classes, *taken.samples.classes)
        make_room(learner, taken.samples, max(len(taken.names), *(label + 1 for label in labels)))
    else:
        known = learner.place.known
    learn_task(learner, taken.samples, taken.classes, epochs, boundary, on_step)
    if not boundary:
        return
    after = judge(learner, record) if _judged(record) else [{} for _ in record.lessons]
    table = retention_of(record, learner.names, learner.earlier or [], after)
    table = replace(table, new=len(set(taken.samples.classes) - set(known)))
    if most is not None and table.lost > most + 1e-9:
        raise Forgot(f"{table.words()}: more than the {100 * most:g} points that may be lost", table)
    mine = after[-1]
    total = sum(count for count, _ in mine.values())
    note = replace(
        record.lessons[-1],
        new=tuple(sorted(set(taken.samples.classes) - set(known))),
        accuracy=sum(count * right for count, right in mine.values()) / total if total else None,
    )
    learner.record = replace(record, lessons=(*record.lessons[:-1], note), rows=plain_rows(table))
    learner.earlier = None


def _with(learner: Learner, taken: Taken) -> Record:
    for lesson, count in overlap(taken.samples, learner.record).items():
        warnings.warn(
            f"{count} of the samples of {taken.name!r} are those that {lesson!r} is judged by: now it is scored on "
            "what was learned; learn other samples",
            stacklevel=4,
        )
    note = LessonNote(taken.name, now(), counted(taken.samples))
    return learner.record.with_lesson(note, taken.held)


def _judged(record: Record) -> bool:
    return any(held is not None for held in record.held)


def undo(learner: Learner) -> None:
    """Put the state of before the last lesson back, with its record."""
    if not learner.previous:
        raise RuntimeError(
            "there is no lesson to undo: none was learned, all that are kept were undone (keep= says how many), or it "
            "was learned with atomic=False"
        )
    *rest, (state, record) = learner.previous
    restore_state(learner, state, learner.history[: state["tasks"]])
    learner.record, learner.previous = record, rest
