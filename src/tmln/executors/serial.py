"""One run after another in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from tmln.executors.interfaces import Outcome, RunRequest
from tmln.executors.run_job import perform, seldom
from tmln.experiments.run import Moment

if TYPE_CHECKING:
    from tmln.executors.interfaces import Take


class SerialPool:
    """A pool that works while it is waited for."""

    capacity, shared = 1, True

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.asked: Callable[[], bool] = lambda: False
        self._next: tuple[str, RunRequest] | None = None

    def submit(self, name: str, task: RunRequest) -> None:
        """Kept for :meth:`wait`, in which it is done."""
        self._next = name, task

    def wait(self, seconds: float, take: Take) -> None:
        """Does the run, from beginning to end; ``seconds`` is for pools that have others to wait for."""
        if self._next is None:
            return
        (name, task), self._next = self._next, None
        take(name, "begun")
        threads = torch.get_num_threads()
        try:
            outcome = self.perform(task, seldom(lambda moment: take(name, moment)))
        finally:
            torch.set_num_threads(threads)
        take(name, outcome)

    def perform(self, task: RunRequest, on_step: Callable[[Moment], None]) -> Outcome:
        """Do it, here and now."""
        return perform(task, on_step, self.asked)

    def stop(self) -> None:
        """Asked between two runs, there is nothing to save; within one, it asks ``asked`` itself."""

    def close(self) -> None:
        """Nothing goes on: what was submitted is dropped."""
        self._next = None
