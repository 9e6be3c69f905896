"""What a worker is sent, and what it sends back. Needs no torch: workers can be started before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from tmln.executors.plan import Job
    from tmln.experiments.result import Result
    from tmln.experiments.run import Moment
    from tmln.experiments.run_options import RunOptions


@dataclass(frozen=True)
class RunRequest:
    """A job and all that is to be known to do it; ``root`` is the folder of runs, as every worker reaches it."""

    job: Job
    root: str
    terms: RunOptions
    threads: int = 1


@dataclass(frozen=True)
class Outcome:
    """How a try ended: ``locked`` is being worked on by others, ``lost`` is its worker's end, ``stopped`` is saved,
    ``away`` that of all workers, ``unwritable`` would be every other run, too: the disk is full."""

    state: Literal["finished", "failed", "locked", "stopped", "lost", "away", "unwritable"]
    result: Result | None = None
    error: str = ""
    warnings: tuple[str, ...] = ()
    cause: BaseException | None = field(default=None, compare=False)  # where it was in this process

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "cause": None}  # not every error can be sent


if TYPE_CHECKING:
    Message = Literal["begun"] | Moment | Outcome
    Take = Callable[[str, Message], None]


class Executor(Protocol):
    """Workers of any kind: ``capacity`` tasks at one time, none of more than ``cores`` threads."""

    capacity: int
    cores: int
    shared: bool  # whether all tasks together have no more than these cores

    def submit(self, name: str, task: RunRequest) -> None:
        """Take a task for a free place; ``name`` is what :meth:`wait` calls it."""

    def wait(self, seconds: float, take: Take) -> None:
        """Hand on what tasks have to say, for about so long; of every task sent in, the last message is an Outcome."""

    def stop(self) -> None:
        """Ask all to save what they do and end it."""

    def close(self) -> None:
        """End all, at once."""
