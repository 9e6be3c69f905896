"""Processes of this machine, each at one run after another: never forks of this one, which may have threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO, TYPE_CHECKING

from tmln.executors.ending import Process, end
from tmln.executors.interfaces import Outcome, RunRequest
from tmln.executors.nursery import FORKS, children

if TYPE_CHECKING:
    from tmln.executors.interfaces import Message, Take

GRACE = 5.0  # seconds for idle workers to go by themselves


@dataclass
class _Worker:
    process: Process
    pipe: Connection
    output: IO[bytes]  # all that it prints; read only if it dies
    name: str | None = None  # of the run it is at
    used: bool = False


class LocalPool:
    """Worker processes, as many as are needed at one time; a dead one is replaced when it is needed."""

    def __init__(self, capacity: int, cores: int, shared: bool = True) -> None:
        self.capacity, self.cores, self.shared = capacity, cores, shared
        self._workers: list[_Worker] = []
        self._waiting: list[tuple[str, RunRequest]] = []

    def warm(self, workers: int) -> None:
        """Start so many now, which load what they need while the caller is busy with other things."""
        self._workers += _start(min(workers, self.capacity) - len(self._workers))

    def submit(self, name: str, task: RunRequest) -> None:
        """For the next :meth:`wait`: workers that are needed at one time are started together."""
        self._waiting.append((name, task))

    def wait(self, seconds: float, take: Take) -> None:
        """What the workers have said; a pipe that has ended is a worker that was lost."""
        begun, self._waiting = self._waiting, []
        idle = [worker for worker in self._workers if worker.name is None]
        new = _start(len(begun) - len(idle))
        self._workers += new
        for worker, (name, task) in zip([*idle, *new], begun, strict=False):
            worker.name, worker.used = name, True
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


def _start(count: int) -> list[_Worker]:
    """So many, all at once: forks of a process that is started for them, where there are several."""
    ends = [Pipe() for _ in range(count)]
    outputs = [tempfile.TemporaryFile() for _ in ends]  # noqa: SIM115
    places = [(its.fileno(), output.fileno()) for (_, its), output in zip(ends, outputs, strict=True)]
    if FORKS and count > 1:
        processes: Sequence[Process] = children(places, _launch)
    else:
        main = "from tmln.executors.worker import main; main"
        processes = [_launch(f"{main}({pipe})", [pipe], output) for pipe, output in places]
    for _, its in ends:
        its.close()
    return [_Worker(*found) for found in zip(processes, (mine for mine, _ in ends), outputs, strict=True)]


def _launch(code: str, files: list[int], output: int) -> subprocess.Popen[bytes]:
    """A new interpreter with this one's sys.path; Ctrl-C in the terminal does not reach it, only we do."""
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"],
        pass_fds=files,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},  # until a task says how many
    )


def _death(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    name = signal.Signals(-code).name
    hint = "; out of memory?" if -code == signal.SIGKILL else ""
    return f"its process was killed by {name}{hint}"
