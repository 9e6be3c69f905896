"""Workers that are forks of one process, which imports what all of them need and computes nothing itself.

To import torch takes two seconds of a processor, and many such processes at once wait for each other.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import TypeAlias

from tmln.lab.lock import started

Launch: TypeAlias = "Callable[[str, list[int], int], subprocess.Popen[bytes]]"  # code, open files, where it prints
FORKS = sys.platform == "linux"  # elsewhere libraries of the system do not stand it


class Nursery:
    """The process that forks, and what it says of its children: their numbers, then the end of each."""

    def __init__(self, process: subprocess.Popen[bytes], reports: Connection) -> None:
        self.process, self._reports = process, reports
        self.pids: list[int] = []
        self.codes: dict[int, int] = {}
        self.gone = False

    def hear(self, seconds: float | None) -> bool:
        """Whether there was a report within so long, which is taken; without a number it is waited for."""
        try:
            if self.gone or not self._reports.poll(seconds):
                return False
            said = self._reports.recv()
        except (EOFError, OSError):
            self.gone = True
            self._reports.close()
            return False
        if isinstance(said, list):
            self.pids = said
        else:
            pid, code = said
            self.codes[pid] = code
        return True


class Forked:
    """One of the children, as ``subprocess.Popen`` would have it. Till it is there, the nursery is meant."""

    def __init__(self, nursery: Nursery, place: int) -> None:
        self._nursery, self._place = nursery, place

    @property
    def pid(self) -> int:
        """Waits till it is there."""
        while not self._nursery.pids and not self._nursery.gone:
            self._nursery.hear(None)
        return self._number

    @property
    def _number(self) -> int:
        return self._nursery.pids[self._place] if self._nursery.pids else self._nursery.process.pid

    def poll(self) -> int | None:
        """Its exit code, as far as is known without waiting."""
        nursery = self._nursery
        while nursery.hear(0):
            pass
        if not nursery.pids:
            return nursery.process.poll()
        pid = nursery.pids[self._place]
        if nursery.gone and pid not in nursery.codes and not started(pid):
            nursery.codes[pid] = 1  # nobody is left to say how it ended
        if len(nursery.codes) == len(nursery.pids):
            nursery.process.wait()  # it has nothing left to do
        return nursery.codes.get(pid)

    def wait(self, seconds: float | None = None) -> int:
        """Its exit code; ``TimeoutExpired`` if it goes on for longer."""
        end = None if seconds is None else time.monotonic() + seconds
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired("worker", seconds or 0)
            self._nursery.hear(0.05)
            if self._nursery.gone:
                time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """If it has not ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self._number, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def serve(reports: int, places: list[tuple[int, int]]) -> None:
    """In the process that forks: a worker for each of ``places``, its pipe and where it prints; ends after the last."""
    try:
        from tmln.executors.worker import main
    except BaseException:
        for _, output in places:  # what each would have printed
            os.write(output, traceback.format_exc().encode())
        raise
    gc.collect()
    gc.freeze()  # or a collection would touch, and so copy, all of this in every child
    pids: list[int] = []
    for pipe, output in places:
        if not (pid := os.fork()):
            os.setsid()
            os.dup2(output, 1)
            os.dup2(output, 2)
            for other in {reports, *(file for place in places for file in place)} - {pipe}:
                os.close(other)
            main(pipe)
        pids.append(pid)
    for pipe, output in places:
        os.close(pipe)
        os.close(output)
    parent = Connection(reports, readable=False)
    with suppress(OSError):  # the parent has gone: the children hear of it, too, and end
        parent.send(pids)
    for _ in pids:
        pid, status = os.wait()
        with suppress(OSError):
            parent.send((pid, os.waitstatus_to_exitcode(status)))


def children(places: list[tuple[int, int]], launch: Launch) -> list[Forked]:
    """A worker for each of ``places``, as :func:`serve` has them, all of one nursery."""
    mine, its = Pipe(duplex=False)
    code = f"from tmln.executors.nursery import serve; serve({its.fileno()}, {places!r})"
    nursery = Nursery(launch(code, [its.fileno(), *(file for place in places for file in place)], places[0][1]), mine)
    its.close()
    return [Forked(nursery, place) for place in range(len(places))]
