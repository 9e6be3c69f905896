"""One run as whoever does it does it: begun or gone on with, and nothing that it meets escapes."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch

from tmln.distributed.process_group import ranks_of
from tmln.executors.interfaces import Outcome, RunRequest
from tmln.experiments.files import write_whole
from tmln.experiments.lock import LockLost, RunLocked
from tmln.experiments.process_memory import keep_memory
from tmln.experiments.reference_runs import reference_of
from tmln.experiments.result import Result
from tmln.experiments.run import Execution, Moment
from tmln.experiments.store import Store
from tmln.signals import Interrupted
from tmln.writing import CannotWrite

PAUSE = 0.25  # seconds between two signs of life
ERROR = "error.txt"  # in the run's folder: where a run that failed did so


def perform(
    task: RunRequest, on_step: Callable[[Moment], None], stop: Callable[[], bool] = lambda: False, fabric: Any = None
) -> Outcome:
    """Do it, or go on with it; ``stop`` is asked after every step, and ends it, saved. ``fabric``: on its devices."""
    torch.set_num_threads(task.threads)
    task.terms.apply()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            outcome = Outcome("finished", _result(task, on_step, stop, fabric))
            _keep(task, None)
        except Interrupted as stopped:
            outcome = Outcome("stopped", error=str(stopped))
        except (RunLocked, LockLost) as error:
            outcome = Outcome("locked", error=str(error))
        except CannotWrite as error:
            outcome = Outcome("unwritable" if error.everywhere else "failed", error=str(error), cause=error)
        except Exception as error:
            outcome = Outcome("failed", error=_one_line(error), cause=error)
            _keep(task, traceback.format_exc())
    said = tuple(dict.fromkeys(str(warning.message) for warning in caught))
    return Outcome(outcome.state, outcome.result, outcome.error, said, outcome.cause)


def seldom(say: Callable[[Moment], None], pause: float = PAUSE) -> Callable[[Moment], None]:
    """Tell of a moment now and then: steps can be much shorter than it takes to show one."""
    said = 0.0

    def on_step(moment: Moment) -> None:
        nonlocal said
        if time.monotonic() - said > pause:
            said = time.monotonic()
            say(moment)

    return on_step


def _result(task: RunRequest, on_step: Callable[[Moment], None], stop: Callable[[], bool], fabric: Any) -> Result:
    keep_memory()
    store, config = Store(task.root), task.job.config
    run = store.open(config)
    with run.lock:
        result = run.result  # another process may have finished it in between
        if result is None:
            reference = reference_of(store, config, task.terms.oracle)
            if fabric is not None and fabric.world_size > 1:
                ranks_of(None).broadcast_object(lambda: task)  # those that follow begin it, too
            result = Execution(run, task.terms, reference, on_step=on_step, stop=stop, fabric=fabric)()
    return result


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    plain = isinstance(error, (ValueError, OSError, ImportError)) and text  # written for people
    return text if plain else f"{type(error).__name__}: {text}".rstrip(": ")


def _keep(task: RunRequest, trace: str | None) -> None:
    """Where it went wrong, for whoever looks into the run's folder; nothing once it went well."""
    try:
        run = Store(task.root).find(task.job.config)
        if run is not None and trace is not None:
            write_whole(run.path / ERROR, trace)
        elif run is not None:
            (run.path / ERROR).unlink(missing_ok=True)
    except (OSError, ValueError):  # the disk, or the configuration, may be what failed
        pass
