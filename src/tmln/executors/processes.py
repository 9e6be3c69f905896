"""Execute runs in worker processes forked from a server that has imported torch."""

from __future__ import annotations

import gc
import os
import queue
import signal
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver, get_context, set_forkserver_preload
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tmln.executors.interfaces import Outcome, RunRequest
from tmln.signals import SIGNALS, asked_to_stop, owned

if TYPE_CHECKING:
    from tmln.executors.interfaces import Message, OnMessage
    from tmln.experiments.run import StepInfo

# On other systems a fork breaks libraries of the system.
START = get_context("forkserver") if sys.platform == "linux" else get_context("spawn")
PRELOAD = ["tmln.executors.run_job"]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # until a job says how many
GRACE = 5.0  # seconds for idle workers to end by themselves


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    output: IO[bytes]  # all that it prints; read only if it dies
    name: str | None = None  # of the run that it executes


class ProcessExecutor:
    """Keeps as many worker processes as are needed at one time, and replaces dead ones."""

    def __init__(self, capacity: int, cores: int, shared: bool = True) -> None:
        self.capacity, self.cores, self.shared = capacity, cores, shared
        self._workers: list[_Worker] = []
        self._submitted: list[tuple[str, RunRequest]] = []

    def submit(self, name: str, request: RunRequest) -> None:
        """Keep the run for the next :meth:`wait`, which sends it to an idle worker or a new one."""
        self._submitted.append((name, request))

    def wait(self, seconds: float, on_message: OnMessage) -> None:
        """Pass on what the workers have sent; a pipe that has ended is a worker that was lost."""
        submitted, self._submitted = self._submitted, []
        idle = [worker for worker in self._workers if worker.name is None]
        for name, request in submitted:
            worker = idle.pop() if idle else self._start()
            worker.name = name
            with suppress(OSError):  # it has died, which reading from the pipe shows below
                worker.pipe.send(request)
            on_message(name, "started")
        busy = {worker.pipe: worker for worker in self._workers if worker.name is not None}
        for pipe in wait(list(busy), 0.0 if submitted else seconds):
            worker = busy[pipe]  # type: ignore[index]
            name, message = str(worker.name), self._read(worker)
            if isinstance(message, Outcome):
                worker.name = None
            on_message(name, message)

    def stop(self) -> None:
        """Send SIGTERM to each worker, which saves its run and ends it."""
        for worker in self._workers:
            worker.process.terminate()

    def close(self) -> None:
        """Kill busy workers; idle ones end by themselves when their pipe is closed."""
        for worker in self._workers:
            worker.pipe.close()
            if worker.name is not None:
                worker.process.kill()
        for worker in self._workers:
            worker.process.join(GRACE)
            worker.process.kill()
            worker.output.close()
        self._workers.clear()

    def count_neighbours(self, runs: int) -> int:
        """Return how many of ``runs`` are executed at the same time."""
        return min(self.capacity, runs)

    def _start(self) -> _Worker:
        start_server()
        mine, its = Pipe()
        file, path = tempfile.mkstemp(prefix="tmln-worker-")
        environment = {**os.environ, **ONE_THREAD}
        process = START.Process(target=_work, args=(its, path, environment))
        process.start()
        its.close()
        worker = _Worker(process, mine, os.fdopen(file, "rb"))
        self._workers.append(worker)
        return worker

    def _read(self, worker: _Worker) -> Message:
        try:
            message: Message = worker.pipe.recv()
            return message
        except (EOFError, OSError):
            pass
        worker.pipe.close()
        worker.process.join()
        printed = worker.output.read().decode(errors="replace").strip().splitlines()
        worker.output.close()
        self._workers.remove(worker)
        how = _describe_exit(worker.process.exitcode or 0)
        return Outcome("lost", error=how + (f" ({printed[-1].strip()})" if printed else ""))


def start_server() -> None:
    """Start the server that workers are forked from, without waiting for its imports."""
    if START.get_start_method() != "forkserver":
        return
    set_forkserver_preload(PRELOAD)
    before = dict(os.environ)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # inherited: Ctrl-C is for this process to handle
    os.environ.update(ONE_THREAD)
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _work(pipe: Connection, output: str, environment: dict[str, str]) -> None:
    """Serve runs in a session of its own, with output to a file that only the parent can read."""
    os.setsid()
    file = os.open(output, os.O_WRONLY | os.O_APPEND)
    Path(output).unlink()
    for standard in (1, 2):
        os.dup2(file, standard)
    os.environ.clear()
    os.environ.update(environment)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    serve(pipe)


def serve(parent: Connection) -> None:
    """Execute the runs that come in, one after another; send progress messages and outcomes."""
    from tmln.executors.run_job import run_job, throttle

    requests: queue.SimpleQueue[RunRequest] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(parent, requests), daemon=True).start()
    while True:
        request = requests.get()
        gc.collect()
        gc.freeze()  # imported modules hold many objects: traversing them took 0.2 s a run
        with owned(), asked_to_stop() as stop:  # between two runs a signal ends the process at once
            outcome = run_job(request, throttle(lambda info: _send(parent, info)), stop)
        _send(parent, outcome)


def _receive(parent: Connection, requests: queue.SimpleQueue[RunRequest]) -> None:
    """Read all that the parent sends; once it has ended, save the run at hand and end."""
    try:
        while True:
            requests.put(parent.recv())
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)


def _send(parent: Connection, message: StepInfo | Outcome) -> None:
    try:
        parent.send(message)
    except OSError:
        raise SystemExit(1) from None


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    name = signal.Signals(-code).name
    hint = "; out of memory?" if -code == signal.SIGKILL else ""
    return f"its process was killed by {name}{hint}"
