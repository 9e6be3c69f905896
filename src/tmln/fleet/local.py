"""Processes of this machine, started afresh (never forked), each at one run after another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO, TYPE_CHECKING

from tmln.fleet.ending import end
from tmln.fleet.task import Outcome, Task

if TYPE_CHECKING:
    from tmln.fleet.task import Message, Take

GRACE = 5.0  # seconds for idle workers to go by themselves


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    pipe: Connection
    output: IO[bytes]  # all that it prints; read only if it dies
    name: str | None = None  # of the run it is at
    used: bool = False


class LocalPool:
    """Worker processes, as many as are needed at one time; a dead one is replaced when it is needed."""

    def __init__(self, capacity: int, cores: int, shared: bool = True) -> None:
        self.capacity, self.cores, self.shared = capacity, cores, shared
        self._workers: list[_Worker] = []
        self._begun: list[str] = []

    def warm(self, workers: int) -> None:
        """Start so many now, which load what they need while the caller is busy with other things."""
        while len(self._workers) < min(workers, self.capacity):
            self._workers.append(_start())

    def submit(self, name: str, task: Task) -> None:
        """To an idle worker, or to a new one."""
        worker = next((w for w in self._workers if w.name is None), None)
        if worker is None:
            worker = _start()
            self._workers.append(worker)
        worker.name, worker.used = name, True
        self._begun.append(name)
        with suppress(OSError):  # it has died: its end of the pipe says so, too
            worker.pipe.send(task)

    def wait(self, seconds: float, take: Take) -> None:
        """What the workers have said; a pipe that has ended is a worker that was lost."""
        begun, self._begun = self._begun, []
        for name in begun:
            take(name, "begun")
        busy = {worker.pipe: worker for worker in self._workers if worker.name is not None}
        for pipe in wait(list(busy), 0.0 if begun else seconds):
            worker = busy[pipe]  # type: ignore[index]
            name, message = str(worker.name), self._read(worker)
            if isinstance(message, Outcome):
                worker.name = None
            take(name, message)

    def stop(self) -> None:
        """SIGTERM to each: its run saves and ends."""
        for worker in self._workers:
            worker.process.terminate()

    def close(self) -> None:
        """Idle workers end by themselves when their pipe does; others are killed."""
        for worker in self._workers:
            worker.pipe.close()
            if worker.name is not None or not worker.used:  # what is still loading has nothing to lose
                worker.process.kill()
        for worker in self._workers:
            end(worker.process, GRACE)
            worker.output.close()
        self._workers.clear()

    def _read(self, worker: _Worker) -> Message:
        try:
            message: Message = worker.pipe.recv()
            return message
        except (EOFError, OSError):
            pass
        worker.pipe.close()
        code = worker.process.wait()
        worker.output.seek(0)
        printed = worker.output.read().decode(errors="replace").strip().splitlines()
        worker.output.close()
        self._workers.remove(worker)
        return Outcome("lost", error=_death(code) + (f" ({printed[-1].strip()})" if printed else ""))


def _start() -> _Worker:
    """A new interpreter with this one's sys.path; Ctrl-C in the terminal does not reach it, only we do."""
    mine, its = Pipe()
    output = tempfile.TemporaryFile()  # noqa: SIM115
    code = f"import sys; sys.path[:] = {sys.path!r}; from tmln.fleet.worker import main; main({its.fileno()})"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        pass_fds=[its.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},  # until a task says how many
    )
    its.close()
    return _Worker(process, mine, output)


def _death(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    name = signal.Signals(-code).name
    hint = "; out of memory?" if -code == signal.SIGKILL else ""
    return f"its process was killed by {name}{hint}"
