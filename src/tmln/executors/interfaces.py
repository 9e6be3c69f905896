"""Define what workers receive and send back, and what executors do. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from tmln.executors.plan import Job
    from tmln.experiments.launch import RunOptions
    from tmln.experiments.result import Result
    from tmln.experiments.run import StepInfo


@dataclass(frozen=True)
class RunRequest:
    """A job with all that a worker needs; ``root`` is the folder of runs."""

    job: Job
    root: str
    options: RunOptions
    threads: int = 1


@dataclass(frozen=True)
class Outcome:
    """The end of one attempt at a run.

    ``stopped``: saved on request; ``locked``: another process works on the run; ``lost``: the
    worker process ended; ``disk_full``: every other run would fail the same way.
    """

    state: Literal["finished", "failed", "locked", "stopped", "lost", "disk_full"]
    result: Result | None = None
    error: str = ""
    warnings: tuple[str, ...] = ()
    cause: BaseException | None = field(default=None, compare=False)  # only within one process

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "cause": None}  # not every exception can be pickled


if TYPE_CHECKING:
    Message: TypeAlias = Literal["started"] | StepInfo | Outcome
    OnMessage: TypeAlias = Callable[[str, Message], None]


class Executor(Protocol):
    """Workers of any kind: at most ``capacity`` runs at a time, of at most ``cores`` threads."""

    capacity: int
    cores: int
    shared: bool  # whether all runs together use no more than these cores

    def submit(self, name: str, request: RunRequest) -> None:
        """Accept a run; :meth:`wait` reports on it under ``name``."""

    def wait(self, seconds: float, on_message: OnMessage) -> None:
        """Pass on the messages of about ``seconds``; the last one of every run is an Outcome."""

    def stop(self) -> None:
        """Ask all runs to save and end."""

    def close(self) -> None:
        """End all workers at once."""

    def count_neighbours(self, runs: int) -> int:
        """Return how many of ``runs`` share this machine's memory; 0 if each run measures it."""
