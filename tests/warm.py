"""Python programs that begin with torch imported: forks of one process that has imported it, and does nothing else.

To import what a run needs takes four seconds of a processor, twenty times what the runs of these tests take. Words,
environment, folder, files, limits, session, signals and exit code are those of any process, and so is a kill. Where the
start of a program is what is tested (what it imports, how it ends before it has), it is started as usual.
"""

from __future__ import annotations

import atexit
import inspect
import os
import pickle
import resource
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.warm_process import COUNT, Program, read

ROOT = Path(__file__).parents[1]
PLACE = "TMLN_TESTS_WARM"  # where the warm process is asked: for the programs that its children start
LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)
PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
COLD = subprocess.Popen  # as long as nobody has changed it


class Warm(subprocess.Popen[Any]):
    """``subprocess.Popen``; what is no program of this Python, by ``-c`` or ``-m``, is started as usual."""

    _line: socket.socket | None = None

    def _execute_child(self, *arguments: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]
        given = inspect.signature(start).bind(*arguments).arguments
        asked = given["args"] if isinstance(given["args"], (list, tuple)) else [""]
        words = [str(word) for word in asked if word != "-u"]
        if words[0] != sys.executable or words[1] not in ("-c", "-m") or given["preexec_fn"] is not None:
            start(*arguments)
            return
        place, environment = _warm(), os.environ if given["env"] is None else given["env"]
        program = Program(
            words[1:],
            os.fspath(given["cwd"] or Path.cwd()),
            {**environment, PLACE: place},
            [0, 1, 2, *given["pass_fds"]],
            {limit: resource.getrlimit(limit) for limit in LIMITS},
            bool(given["start_new_session"]),
        )
        standard = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        files = [number if file == -1 else file for number, file in enumerate(standard)]
        self._line, said = socket.socket(socket.AF_UNIX), pickle.dumps(program)
        self._line.connect(place)
        socket.send_fds(self._line, [COUNT.pack(len(said))], [*files, *given["pass_fds"]])
        self._line.sendall(said)
        (self.pid,) = COUNT.unpack(read(self._line, COUNT.size))
        self._child_created = True
        self._close_pipe_fds(*(given[name] for name in PIPES))  # type: ignore[attr-defined]

    def _internal_poll(self, *arguments: Any, **named: Any) -> int | None:
        if self._line is None:
            found: int | None = super()._internal_poll(*arguments, **named)  # type: ignore[misc]
            return found
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid == self.pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._line is None:
            found: tuple[int, int] = super()._try_wait(flags)  # type: ignore[misc]
            return found
        self._line.setblocking(not flags & os.WNOHANG)
        try:
            said = self._line.recv(COUNT.size)
        except BlockingIOError:
            return 0, 0
        self._line.close()
        return self.pid, COUNT.unpack(said)[0]


@cache
def _warm() -> str:
    """The address of the warm process: that which this one came from, or a new one, which ends with this one."""
    if PLACE in os.environ:
        return os.environ[PLACE]
    folder = tempfile.mkdtemp(prefix="tmln-warm-")
    place, path = f"{folder}/asked", [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
    code = f"from tests.warm_process import serve; serve({place!r})"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
    process = COLD([sys.executable, "-c", code], env=environment, **pipes)  # type: ignore[call-overload]
    assert process.stdout.readline() == b"ready\n"
    atexit.register(process.communicate)  # its input ends, and so does it
    return place
