"""The command's end of the line to the process that speaks with Ray (:mod:`tmln.executors.liaison`)."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Pipe
from typing import Any

from tmln.executors.ending import end
from tmln.executors.wish import Wish

STARTS = 300.0  # seconds for Ray to be there: on a busy machine it takes its time
GRACE = 3.0  # seconds for Ray to be told that all is over; what it started here ends with the process in any case


class Line:
    """A new interpreter with this one's sys.path; Ctrl-C in the terminal does not reach it, only we do."""

    def __init__(self, wish: Wish) -> None:
        """``cores`` are those of the cluster's largest machine; an error in one sentence if Ray cannot be had."""
        self._pipe, its = Pipe()
        code = f"import sys; sys.path[:] = {sys.path!r}; from tmln.executors.liaison import main; main({its.fileno()})"
        quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[its.fileno()], start_new_session=True, **quiet
        )
        its.close()
        word, rest = "refused", f"Ray did not start in {STARTS:g} s"
        try:
            self._pipe.send(wish)
            if self._pipe.poll(STARTS):
                word, rest = self._pipe.recv()
        except (EOFError, OSError):
            rest = "Ray ended the process that speaks with it"
        finally:  # also where we are interrupted
            if word != "ready":
                self.end()
        if word != "ready":
            raise ImportError(rest) if word == "lacking" else ValueError(rest)
        self.cores = int(rest)

    def tell(self, *words: Any) -> None:
        """``EOFError`` or ``OSError``, here as in :meth:`heard`: Ray has ended the process, and the cluster is lost."""
        self._pipe.send(words)

    def heard(self, seconds: float) -> list[tuple[str, Any]]:
        """All that has come, after so long at most till the first of it."""
        found: list[tuple[str, Any]] = []
        try:
            while self._pipe.poll(0 if found else seconds):
                found.append(self._pipe.recv())
        except (EOFError, OSError):
            if not found:
                raise
        return found

    def close(self) -> None:
        """Ray is told, if there is time for it."""
        with suppress(OSError):
            self.tell("close")
        self.end(GRACE)

    def end(self, grace: float = 0.0) -> None:
        """At once, or after so long."""
        end(self._process, grace)
        self._pipe.close()
