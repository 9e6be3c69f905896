"""Execute one run in this process, from its beginning or last checkpoint."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tmln.distributed.process_group import ranks_of
from tmln.executors.interfaces import Outcome, RunRequest
from tmln.experiments.files import write_whole
from tmln.experiments.lock import LockLost, RunLocked
from tmln.experiments.memory_estimate import keep_memory
from tmln.experiments.reference_runs import reference_of
from tmln.experiments.result import Result
from tmln.experiments.run import Execution, StepInfo
from tmln.experiments.store import Store
from tmln.signals import Interrupted, asked_to_stop
from tmln.writing import CannotWrite

if TYPE_CHECKING:
    from tmln.executors.interfaces import OnMessage

PAUSE = 0.25  # seconds between two progress messages
ERROR = "error.txt"  # in the run's folder: the traceback of a run that failed


def run_job(
    request: RunRequest,
    on_step: Callable[[StepInfo], None],
    stop: Callable[[], bool] = lambda: False,
    fabric: Any = None,
) -> Outcome:
    """Execute or resume a run; every exception becomes an Outcome.

    Args:
        request: the run and how it is executed.
        on_step: called after every training step.
        stop: asked after every step; once true, the run is saved and ends.
        fabric: Lightning Fabric, for a run over several devices.
    """
    torch.set_num_threads(request.threads)
    request.options.apply()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            outcome = Outcome("finished", _execute(request, on_step, stop, fabric))
            _write_traceback(request, None)
        except Interrupted as stopped:
            outcome = Outcome("stopped", error=str(stopped))
        except (RunLocked, LockLost) as error:
            outcome = Outcome("locked", error=str(error))
        except CannotWrite as error:
            outcome = Outcome("disk_full" if error.everywhere else "failed", error=str(error), cause=error)
        except Exception as error:
            outcome = Outcome("failed", error=_describe(error), cause=error)
            _write_traceback(request, traceback.format_exc())
    texts = tuple(dict.fromkeys(str(warning.message) for warning in caught))
    return Outcome(outcome.state, outcome.result, outcome.error, texts, outcome.cause)


def throttle(report: Callable[[StepInfo], None], pause: float = PAUSE) -> Callable[[StepInfo], None]:
    """Return a callback that passes on at most one progress message per ``pause`` seconds."""
    last = 0.0

    def on_step(info: StepInfo) -> None:
        nonlocal last
        if time.monotonic() - last > pause:
            last = time.monotonic()
            report(info)

    return on_step


def _execute(request: RunRequest, on_step: Callable[[StepInfo], None], stop: Callable[[], bool], fabric: Any) -> Result:
    keep_memory()
    store, config = Store(request.root), request.job.config
    run = store.open(config)
    with run.lock:
        result = run.result  # another process may have finished it in between
        if result is None:
            reference = reference_of(store, config, request.options.oracle)
            if fabric is not None and fabric.world_size > 1:
                ranks_of(None).broadcast_object(lambda: request)  # the other ranks begin it, too
            result = Execution(run, request.options, reference, on_step=on_step, stop=stop, fabric=fabric)()
    return result


def _describe(error: Exception) -> str:
    text = " ".join(str(error).split())
    written_for_users = isinstance(error, (ValueError, OSError, ImportError)) and text
    return text if written_for_users else f"{type(error).__name__}: {text}".rstrip(": ")


def _write_traceback(request: RunRequest, trace: str | None) -> None:
    """Write the traceback into the run's folder; None removes that of an earlier attempt."""
    try:
        run = Store(request.root).find(request.job.config)
        if run is not None and trace is not None:
            write_whole(run.path / ERROR, trace)
        elif run is not None:
            (run.path / ERROR).unlink(missing_ok=True)
    except (OSError, ValueError):  # the disk, or the configuration, may be what failed
        pass


class SerialExecutor:
    """Executes one run after another in this process, within :meth:`wait`."""

    capacity, shared = 1, True

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._next: tuple[str, RunRequest] | None = None

    def submit(self, name: str, request: RunRequest) -> None:
        """Keep the run for :meth:`wait`."""
        self._next = name, request

    def wait(self, seconds: float, on_message: OnMessage) -> None:
        """Execute the run from beginning to end, however long it takes."""
        if self._next is None:
            return
        (name, request), self._next = self._next, None
        on_message(name, "started")
        threads = torch.get_num_threads()
        try:
            with asked_to_stop() as stop:
                outcome = self.execute(request, throttle(lambda info: on_message(name, info)), stop)
        finally:
            torch.set_num_threads(threads)
        on_message(name, outcome)

    def execute(self, request: RunRequest, on_step: Callable[[StepInfo], None], stop: Callable[[], bool]) -> Outcome:
        """Execute one run."""
        return run_job(request, on_step, stop)

    def stop(self) -> None:
        """Do nothing: a run within :meth:`wait` asks by itself whether to stop."""

    def close(self) -> None:
        """Drop a run that was not begun."""
        self._next = None

    def count_neighbours(self, runs: int) -> int:
        """Return 0: a run in this process measures the free memory itself."""
        return 0
