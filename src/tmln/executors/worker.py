"""A worker process: does one run after another for its parent, and saves the one at hand when the parent has gone."""

from __future__ import annotations

import gc
import os
import queue
import signal
import threading
from multiprocessing.connection import Connection

from tmln.executors.interfaces import Outcome, RunRequest
from tmln.executors.run_job import perform, seldom
from tmln.experiments.run import Moment
from tmln.signals import asked_to_stop, owned


def main(parent: Connection) -> None:
    """Do the jobs that come in, one after another; moments and outcomes go out."""
    tasks: queue.SimpleQueue[RunRequest] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(parent, tasks), daemon=True).start()
    while True:
        task = tasks.get()
        gc.collect()
        gc.freeze()  # of modules there are many objects: to look through them took 0.2 s a run
        with owned(), asked_to_stop() as stop:  # between two runs a signal ends the process as the system does
            outcome = perform(task, seldom(lambda moment: _send(parent, moment)), stop)
        _send(parent, outcome)


def _listen(parent: Connection, tasks: queue.SimpleQueue[RunRequest]) -> None:
    try:
        while True:
            tasks.put(parent.recv())
    except (EOFError, OSError):  # the parent has ended, or wants no more
        os.kill(os.getpid(), signal.SIGTERM)


def _send(parent: Connection, message: Moment | Outcome) -> None:
    try:
        parent.send(message)
    except OSError:
        raise SystemExit(1) from None
