"""A worker process: does one run after another for its parent, and saves the one at hand when the parent has gone."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from multiprocessing.connection import Connection

from tmln.lab.executors.work import Outcome, Work, perform
from tmln.lab.run import Moment
from tmln.stopping import owned

PAUSE = 0.25  # seconds between two signs of life


def main(handle: int) -> None:
    """``handle`` is this end of a pipe: works come in, moments and outcomes go out."""
    parent = Connection(handle)
    works: queue.SimpleQueue[Work] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(parent, works), daemon=True).start()
    said = 0.0

    def on_step(moment: Moment) -> None:
        nonlocal said
        if time.monotonic() - said > PAUSE:
            said = time.monotonic()
            _send(parent, moment)

    while True:
        work = works.get()
        said = 0.0
        with owned():  # between two runs a signal ends the process as the system does
            outcome = perform(work, on_step)
        _send(parent, outcome)


def _listen(parent: Connection, works: queue.SimpleQueue[Work]) -> None:
    try:
        while True:
            works.put(parent.recv())
    except (EOFError, OSError):  # the parent has ended, or wants no more
        os.kill(os.getpid(), signal.SIGTERM)


def _send(parent: Connection, message: Moment | Outcome) -> None:
    try:
        parent.send(message)
    except OSError:
        raise SystemExit(1) from None
