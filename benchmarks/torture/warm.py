"""Fork children of one process that has imported torch; they may be killed, starved or stopped.

The warm process itself never computes, so that a fork of it is as good as a fresh start. What a child prints comes back
through a pipe, which no limit on the size of files touches.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

PATIENCE = 600.0  # seconds until a child that says nothing counts as endless: no measure of anything
WARM = [
    "sklearn.datasets",
    "torch._dynamo",  # the first step of any optimizer imports it
    "PIL.Image",
    "benchmarks.torture.table",
    "tmln.executors.progress_display",  # what `tmln run` imports on its way; a name that has moved only costs time
    "tmln.executors.execute",
    "tmln.analysis.notes",
    "tmln.analysis.summary_text",
    "tmln.analysis.tables",
    "rich.table",
]
ENDLESS = "(it did not end)"
_ONE_AT_A_TIME = threading.Lock()  # two threads that ask for one child's end would read it twice

Tell = Callable[[Any], None]


@dataclass(frozen=True)
class Ended:
    """How a child ended: exit code (a signal's number, negative), all that it printed, the last thing it told."""

    code: int
    said: str
    value: Any = None

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Child:
    """``function(tell, *arguments)`` in a process of its own; what it returns is told, too."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        context = _warm()
        self._hear, tell = context.Pipe(duplex=False)
        self._output, write = context.Pipe(duplex=False)
        self._process = context.Process(target=_begin, args=(function, arguments, tell, write), daemon=True)
        with _ONE_AT_A_TIME:
            self._process.start()
        tell.close()
        write.close()
        self.pid = int(self._process.pid or 0)

    def hear(self) -> Any:
        """The next thing it tells; None if it ends before, or says nothing for too long."""
        with suppress(EOFError, OSError):
            if self._hear.poll(PATIENCE):
                return self._hear.recv()
        return None

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, patience: float = PATIENCE) -> Ended:
        said, end, endless = bytearray(), time.monotonic() + patience, False
        while True:
            if not endless and not wait([self._output], max(0.0, end - time.monotonic())):
                self.signal(signal.SIGKILL)
                endless = True
            piece = os.read(self._output.fileno(), 1 << 16)
            if not piece:
                break
            said += piece
        value = None
        with suppress(EOFError, OSError):
            while self._hear.poll(0):
                value = self._hear.recv()
        with _ONE_AT_A_TIME:
            self._process.join()
            code = int(self._process.exitcode or 0)
        self._hear.close()
        self._output.close()
        text = said.decode(errors="replace")
        return Ended(1, f"{text}\n{ENDLESS}") if endless else Ended(code, text, value)


def call(function: Callable[..., Any], *arguments: Any) -> Ended:
    return Child(function, *arguments).wait()


@cache
def _warm() -> multiprocessing.context.ForkServerContext:
    """The path is set for what the children start in turn, Ray's workers among them."""
    tree = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([tree, f"{tree}{os.sep}src", os.environ.get("PYTHONPATH", "")])
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(WARM)
    return context


def _begin(function: Callable[..., Any], arguments: tuple[Any, ...], tell: Connection, write: Connection) -> None:
    import torch

    code = 0
    gc.freeze()  # a collection would touch, and so copy, all that the warm process has imported: half of a run's time
    try:
        for handle in (1, 2):
            os.dup2(write.fileno(), handle)
        write.close()
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        tell.send(function(tell.send, *arguments))
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
