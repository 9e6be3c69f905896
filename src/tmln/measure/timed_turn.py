"""A learner that takes turns with others: some steps of a task and the task's boundary, each timed."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from tmln.learner import Learner
from tmln.measure.memory_cost import held
from tmln.streams import Task


@dataclass(frozen=True)
class Turn:
    """Seconds of a step, seconds of the parts' ``end``, and what the parts held before it."""

    step: float
    boundary: float
    held: dict[str, int]


class _Pause(Exception):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch


def take_turn(learner: Learner, task: Task, steps: int) -> Turn:
    """``steps`` steps on the task's samples, after one that does not count, and the boundary of the whole task.

    The learner is stopped in the middle of the task, as a killed run is; when it goes on, the epochs asked for are
    over, and what remains is the boundary.
    """
    count = min(len(task.train), steps * learner.batch_size)  # so few that the last step is in a second epoch
    few = task.train.subset(torch.arange(count) * len(task.train) // count)
    at: list[float] = []

    def note(epoch: int, number: int, loss: float) -> None:
        at.append(time.perf_counter())
        if len(at) > steps:
            raise _Pause(epoch)

    try:
        learner.learn(few, steps + 1, classes=task.classes, atomic=False, on_step=note)
        raise AssertionError("a learner cannot run out of epochs before it has made its steps")
    except _Pause as pause:
        epochs = pause.epoch
    found = held(learner)
    begin = time.perf_counter()
    learner.learn(task.train, epochs, classes=task.classes, atomic=False)
    return Turn((at[-1] - at[0]) / steps, time.perf_counter() - begin, found)
