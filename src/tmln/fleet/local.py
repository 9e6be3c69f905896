"""Processes of this machine, started afresh (never forked), each with its share of the cores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO

from tmln.fleet.task import Message, Outcome, Work

GRACE = 5.0  # seconds for idle workers to go by themselves


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    pipe: Connection
    output: IO[bytes]  # all that it prints; read only if it dies
    name: str | None = None  # of the run it is at


class LocalPool:
    """At most ``capacity`` worker processes of ``threads`` threads; a dead one is replaced when it is needed."""

    def __init__(self, capacity: int, threads: int) -> None:
        self.capacity, self.threads = capacity, threads
        self._workers: list[_Worker] = []
        self._begun: list[tuple[str, Message]] = []

    def submit(self, name: str, work: Work) -> None:
        worker = next((w for w in self._workers if w.name is None), None)
        if worker is None:
            worker = _start(self.threads)
            self._workers.append(worker)
        worker.name = name
        self._begun.append((name, "begun"))
        with suppress(OSError):  # it has died: its end of the pipe says so, too
            worker.pipe.send(work)

    def wait(self, seconds: float) -> list[tuple[str, Message]]:
        messages, self._begun = self._begun, []
        busy = {worker.pipe: worker for worker in self._workers if worker.name is not None}
        for pipe in wait(list(busy), 0.0 if messages else seconds):
            worker = busy[pipe]  # type: ignore[index]
            assert worker.name is not None
            message = self._read(worker)
            messages.append((worker.name, message))
            if isinstance(message, Outcome):
                worker.name = None
        return messages

    def stop(self) -> None:
        for worker in self._workers:
            worker.process.terminate()

    def close(self) -> None:
        for worker in self._workers:
            worker.pipe.close()
            if worker.name is not None:
                worker.process.kill()
        for worker in self._workers:
            try:
                worker.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
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


def _start(threads: int) -> _Worker:
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
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
    )
    its.close()
    return _Worker(process, mine, output)


def _death(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    name = signal.Signals(-code).name
    hint = "; out of memory?" if -code == signal.SIGKILL else ""
    return f"its process was killed by {name}{hint}"
