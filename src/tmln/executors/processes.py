"""Run jobs in worker processes of this machine: forks of a server that has imported torch and computes nothing."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver, get_context, set_forkserver_preload
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tmln.executors.interfaces import Outcome, RunRequest
from tmln.signals import SIGNALS

if TYPE_CHECKING:
    from tmln.executors.interfaces import Message, Take

# Elsewhere libraries of the system fail after a fork.
START = get_context("forkserver") if sys.platform == "linux" else get_context("spawn")
PRELOAD = ["tmln.executors.worker"]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # until a job says how many
GRACE = 5.0  # seconds for idle workers to end by themselves


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    output: IO[bytes]  # all that it prints; read only if it dies
    name: str | None = None  # of the run it is at


class LocalPool:
    """Keep as many worker processes as are needed at one time; a dead one is replaced when it is needed."""

    def __init__(self, capacity: int, cores: int, shared: bool = True) -> None:
        self.capacity, self.cores, self.shared = capacity, cores, shared
        self._workers: list[_Worker] = []
        self._waiting: list[tuple[str, RunRequest]] = []

    def submit(self, name: str, task: RunRequest) -> None:
        """Keep the job for the next :meth:`wait`, which hands it to an idle worker or a new one."""
        self._waiting.append((name, task))

    def wait(self, seconds: float, take: Take) -> None:
        """Hand on what the workers have sent; a pipe that has ended is a worker that was lost."""
        begun, self._waiting = self._waiting, []
        idle = [worker for worker in self._workers if worker.name is None]
        for name, task in begun:
            worker = idle.pop() if idle else self._start()
            worker.name = name
            with suppress(OSError):  # it has died: its end of the pipe says so, too
                worker.pipe.send(task)
            take(name, "begun")
        busy = {worker.pipe: worker for worker in self._workers if worker.name is not None}
        for pipe in wait(list(busy), 0.0 if begun else seconds):
            worker = busy[pipe]  # type: ignore[index]
            name, message = str(worker.name), self._read(worker)
            if isinstance(message, Outcome):
                worker.name = None
            take(name, message)

    def stop(self) -> None:
        """Send SIGTERM to each worker: its run saves and ends."""
        for worker in self._workers:
            worker.process.terminate()

    def close(self) -> None:
        """Kill the workers that are at a run; idle ones end by themselves when their pipe does."""
        for worker in self._workers:
            worker.pipe.close()
            if worker.name is not None:
                worker.process.kill()
        for worker in self._workers:
            worker.process.join(GRACE)
            worker.process.kill()
            worker.output.close()
        self._workers.clear()

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
    """Start the process that workers are forks of, unless it runs; what it imports (PRELOAD) is not waited for."""
    if START.get_start_method() != "forkserver":
        return
    set_forkserver_preload(PRELOAD)
    before = dict(os.environ)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # inherited: Ctrl-C is for this process to obey
    os.environ.update(ONE_THREAD)
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _work(pipe: Connection, output: str, environment: dict[str, str]) -> None:
    """Be a worker, in a session of its own, whose output goes to a file that only this process and its parent have."""
    os.setsid()
    file = os.open(output, os.O_WRONLY | os.O_APPEND)
    Path(output).unlink()
    for standard in (1, 2):
        os.dup2(file, standard)
    os.environ.clear()
    os.environ.update(environment)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    from tmln.executors.worker import main

    main(pipe)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    name = signal.Signals(-code).name
    hint = "; out of memory?" if -code == signal.SIGKILL else ""
    return f"its process was killed by {name}{hint}"
