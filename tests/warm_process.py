"""The warm process: it has imported what a run needs, and forks a child for every program that it is asked for.

It computes nothing itself and has one thread, so that a fork of it is as good as a fresh start.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import os
import pickle
import random
import resource
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
import types
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

WARM = [
    "sklearn.datasets",
    "torch._dynamo",
    "tmln.cli.app",
    "tmln.executors.progress_display",
    "tmln.executors.execute",
]
WARM += [
    "tmln.executors.run_job",
    "tmln.analysis.notes",
    "tmln.analysis.summary_text",
    "tmln.analysis.tables",
    "rich.table",
]
WARM += ["tmln.deploy.learn", "PIL.Image"]
COUNT = struct.Struct("!i")
MORE = "TMLN_TESTS_WARM_IMPORTS"  # of a program's environment: what else is imported before it is forked, and kept
HIGH = 500  # files wait here till those of the warm process are closed


@dataclass(frozen=True)
class Program:
    """``-c code`` or ``-m module`` and the rest; ``files`` are the numbers that its open files have there."""

    words: list[str]
    folder: str
    environment: dict[str, str]
    files: list[int]
    limits: dict[int, tuple[int, int]]
    session: bool


def serve(place: str) -> None:
    """Till whoever started this process has gone: each line is a program asked for, its number, and how it ended.

    ``place`` is a file that is not there yet, in a folder of its own; both are cleared away at the end.
    """
    _load(WARM)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    base = [path for path in sys.path if path and path not in given]
    asked, lines = socket.socket(socket.AF_UNIX), dict[int, socket.socket]()
    asked.bind(place)
    asked.listen()
    wakes, woken = socket.socketpair()
    for end in (wakes, woken):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    ready = selectors.DefaultSelector()
    for source in (asked, wakes, sys.stdin):
        ready.register(source, selectors.EVENT_READ)
    os.write(1, b"ready\n")
    while True:
        sources = [key.fileobj for key, _ in ready.select()]
        if sys.stdin in sources:
            Path(place).unlink()
            Path(place).parent.rmdir()
            return
        if wakes in sources:
            wakes.recv(1 << 10)
            _tell_of_the_dead(lines)
        if asked not in sources:
            continue
        line = asked.accept()[0]
        size, files, _, _ = socket.recv_fds(line, COUNT.size, 64)
        program: Program = pickle.loads(read(line, COUNT.unpack(size)[0]))
        _load([name for name in program.environment.get(MORE, "").split(",") if name not in sys.modules])
        if not (child := os.fork()):
            signal.set_wakeup_fd(-1)
            ready.close()
            for mine in (asked, wakes, woken, line, *lines.values()):
                mine.close()
            become(program, files, base)
        lines[child] = line
        line.sendall(COUNT.pack(child))
        for file in files:
            os.close(file)


def _load(names: list[str]) -> None:
    for name in filter(None, names):
        with suppress(ImportError):  # a name that has moved, or an extra that is not there, only costs time
            importlib.import_module(name)
    if names:
        gc.collect()
        gc.freeze()  # a collection would touch, and so copy, all of this in every child


def read(line: socket.socket, size: int) -> bytes:
    """So many bytes."""
    found = b""
    while len(found) < size:
        piece = line.recv(size - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found


def _tell_of_the_dead(lines: dict[int, socket.socket]) -> None:
    while lines:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not child:
            return
        with lines.pop(child) as line, suppress(OSError):  # nobody need wait for it
            line.sendall(COUNT.pack(status))


def become(program: Program, files: list[int], base: list[str]) -> None:
    """Be that program, to its end."""
    from tests.warm import Warm

    waiting = [fcntl.fcntl(file, fcntl.F_DUPFD, HIGH) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(waiting, program.files, strict=True):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if program.session:
        os.setsid()
    os.chdir(program.folder)
    os.environ.clear()
    os.environ.update(program.environment)
    for limit, value in program.limits.items():
        resource.setrlimit(limit, value)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    random.seed()
    subprocess.Popen = Warm  # type: ignore[misc]
    code = 1
    try:
        code = _run(program.words, base)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            for thread in threading.enumerate():
                if thread is not threading.main_thread() and not thread.daemon:
                    thread.join()
            atexit._run_exitfuncs()
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run(words: list[str], base: list[str]) -> int:
    """As Python does: its exit code."""
    how, what, *rest = words
    paths = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    sys.path[:] = ["" if how == "-c" else str(Path.cwd()), *paths, *base]
    sys.argv[:] = [how, *rest]
    try:
        if how == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(what, "<string>", "exec"), main.__dict__)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0
