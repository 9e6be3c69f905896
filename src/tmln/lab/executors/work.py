"""One run as a worker does it: what it is sent, what it sends back, and that nothing it meets escapes."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tmln.lab import footprint
from tmln.lab.device import VARIABLE
from tmln.lab.files import write_whole
from tmln.lab.lock import LockLost, RunLocked
from tmln.lab.oracle import Oracle
from tmln.lab.run import Moment
from tmln.lab.session import Job, run_jobs
from tmln.lab.store import Store
from tmln.models import own
from tmln.models.own import code_allowed
from tmln.stopping import Interrupted
from tmln.writing import CannotWrite

ERROR = "error.txt"  # in the run's folder: where a run that failed did so


@dataclass(frozen=True)
class Work:
    """A job and all that is to be known to do it; ``root`` is the folder of runs, as every worker reaches it."""

    job: Job
    root: str
    oracle: Oracle
    threads: int = 1
    checkpoint_seconds: float = 300.0
    checkpoint_steps: int | None = None
    logger: str = "none"
    device: str = field(default_factory=lambda: os.environ.get(VARIABLE) or "auto")  # as whoever asked wants it
    memory: str = field(default_factory=lambda: os.environ.get(footprint.VARIABLE) or "")  # what each run may hold
    allow_code: bool = field(default_factory=code_allowed)  # as they have said


@dataclass(frozen=True)
class Outcome:
    """How a try ended: ``locked`` is being worked on by others, ``lost`` is its worker's end, ``stopped`` is saved,
    ``unwritable`` would be every other run, too: the disk is full."""

    state: Literal["finished", "failed", "locked", "stopped", "lost", "unwritable"]
    result: dict[str, Any] | None = None
    error: str = ""
    warnings: tuple[str, ...] = ()


Message = Literal["begun"] | Moment | Outcome


def perform(work: Work, on_step: Callable[[Moment], None]) -> Outcome:
    """Do it, or go on with it; SIGTERM and SIGINT save it and end it. Call this in a process's main thread."""
    import torch

    torch.set_num_threads(work.threads)
    os.environ[VARIABLE] = work.device
    os.environ[footprint.VARIABLE] = work.memory
    os.environ[own.VARIABLE] = "1" if work.allow_code else "0"
    results: list[dict[str, Any]] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            run_jobs(
                Store(work.root),
                [work.job],
                work.oracle,
                on_step=on_step,
                on_end=lambda job, result: results.append(result),
                checkpoint_seconds=work.checkpoint_seconds,
                checkpoint_steps=work.checkpoint_steps,
                logger=work.logger,
            )
            outcome = Outcome("finished", results[0])
            _keep(work, None)
        except Interrupted as stopped:
            outcome = Outcome("stopped", error=str(stopped))
        except (RunLocked, LockLost) as error:
            outcome = Outcome("locked", error=str(error))
        except CannotWrite as error:
            outcome = Outcome("unwritable" if error.everywhere else "failed", error=str(error))
        except Exception as error:
            outcome = Outcome("failed", error=_one_line(error))
            _keep(work, traceback.format_exc())
    said = tuple(dict.fromkeys(str(warning.message) for warning in caught))
    return Outcome(outcome.state, outcome.result, outcome.error, said)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    plain = isinstance(error, (ValueError, OSError, ImportError)) and text  # written for people
    return text if plain else f"{type(error).__name__}: {text}".rstrip(": ")


def _keep(work: Work, trace: str | None) -> None:
    """Where it went wrong, for whoever looks into the run's folder; nothing once it went well."""
    try:
        run = Store(work.root).find(work.job.config)
        if run is not None and trace is not None:
            write_whole(run.path / ERROR, trace)
        elif run is not None:
            (run.path / ERROR).unlink(missing_ok=True)
    except (OSError, ValueError):  # the disk, or the configuration, may be what failed
        pass
