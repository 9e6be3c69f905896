"""Runs as tasks of a Ray cluster, an existing one or a local one. A head that is lost and comes back loses no run."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tmln.fleet.bundle import RESULT, pack, unpack
from tmln.fleet.errand import Errand
from tmln.fleet.liaison import Wish, import_ray
from tmln.fleet.task import Outcome, Task
from tmln.lab.config import run_id
from tmln.lab.lock import LockLost, RunLocked
from tmln.lab.oracle import reference_config
from tmln.lab.store import Run, Store

if TYPE_CHECKING:
    from tmln.fleet.task import Take

PATIENCE = 5.0  # seconds for a cluster's address to answer
STARTS = 300.0  # seconds for the process that speaks with Ray to be ready: on a busy machine Ray takes its time
AWAY = 900.0  # seconds that a cluster that was there may be away
PAUSE = 1.0  # seconds between two tries to reach it again
QUEUE = 1000  # tasks handed to Ray at one time: enough for it to see that more machines are wanted
HELD = 64  # the same of runs that are collected: each has a lock here
GRACE = 5.0  # seconds for Ray to be told that all is over
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # of RFC 9113, with empty settings


class RayPool:
    """Hands tasks to a process of its own, which speaks with Ray (:mod:`tmln.fleet.liaison`)."""

    shared = False

    def __init__(
        self,
        workers: int | None,
        threads: int | None,
        gpus: float,
        address: str | None,
        here: int,
        *,
        memory: int = 0,
        collect: bool = False,
        fetch: bool = False,
    ) -> None:
        """``threads`` of each run as far as they are given; ``here`` are the cores of this machine."""
        if importlib.util.find_spec("ray") is None:
            import_ray()
        self.capacity = workers or (HELD if collect else QUEUE)
        self.collect, self.fetch = collect, fetch
        cpus = max(here, (threads or 1) * workers) if workers else None
        self._wish = Wish(address or _connected(), cpus, threads or 1, gpus, memory)
        self._open: dict[str, Task] = {}
        self._unsent: dict[str, Task] = {}
        self._held: dict[str, Run] = {}
        self._tokens: dict[str, Path] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._lost_at = 0.0
        if address is not None:
            reach(address)
        self._start()

    def submit(self, name: str, task: Task) -> None:
        """Sent at once, or as soon as the cluster is there again."""
        self._open[name] = self._unsent[name] = task

    def wait(self, seconds: float, take: Take) -> None:
        """What Ray's tasks have said. A cluster that is lost gives its runs back, and is waited for."""
        if self._process is None:
            self._return(take)
            return
        try:
            for name in list(self._unsent):
                self._send(name, self._unsent.pop(name), take)
            while self._pipe.poll(seconds):
                name, message, files = self._pipe.recv()
                seconds = 0.0
                if name in self._open:
                    self._hear(name, message, files, take)
        except (EOFError, OSError):
            self._end()
            self._lost_at = time.monotonic()
            for name in [name for name in self._open if name not in self._unsent]:
                self._close(name)
                take(name, Outcome("away", error="the Ray cluster was lost, and is waited for"))

    def stop(self) -> None:
        """Each run saves and ends."""
        with suppress(OSError):
            if self._process is not None:
                self._pipe.send(("stop",))

    def close(self) -> None:
        """Without waiting for runs; a cluster that was there before goes on."""
        with suppress(OSError):
            if self._process is not None:
                self._pipe.send(("close",))
        self._end(GRACE)
        for name in list(self._open):
            self._close(name)
        for token in self._tokens.values():
            token.unlink(missing_ok=True)

    def _send(self, name: str, task: Task, take: Take) -> None:
        sent: dict[str, bytes] = {}
        if self.collect:
            run = Store(task.root).open(task.job.config)
            try:
                run.lock.acquire()
            except RunLocked as error:
                self._close(name)
                take(name, Outcome("locked", error=str(error)))
                return
            self._held[name] = run
            if run.result is not None:
                self._hear(name, Outcome("finished", run.result), b"", take)
                return
            wanted = reference_config(task.job.config, task.terms.oracle)
            if wanted is not None:
                sent[run_id(wanted)] = pack(Path(task.root) / run_id(wanted), ("config.yaml", RESULT))
            sent[run.name] = pack(run.path)
        elif task.root not in self._tokens:
            self._tokens[task.root] = Path(task.root) / f".command-{uuid.uuid4().hex}"
            self._tokens[task.root].touch()
        token = "" if self.collect else self._tokens[task.root].name
        errand = Errand(task, os.environ.get("TMLN_DATA"), self.fetch, self.collect, token, sent)
        self._pipe.send(("do", name, errand))

    def _hear(self, name: str, message: Any, files: bytes, take: Take) -> None:
        if isinstance(message, Outcome):
            run = self._held.get(name)
            if files and run is not None:
                try:
                    run.lock.check()
                    unpack(files, run.path)
                except LockLost as error:
                    message = Outcome("locked", error=str(error))
            self._close(name)
        take(name, message)

    def _close(self, name: str) -> None:
        self._open.pop(name, None)
        if name in self._held:
            self._held.pop(name).lock.release()

    def _return(self, take: Take) -> None:
        """Try once to reach the cluster again; an error if it has been away for too long."""
        address = self._wish.address
        try:
            if address is not None:
                reach(address)
            self._start()
        except ValueError as error:
            if time.monotonic() - self._lost_at > AWAY:
                raise ValueError(f"{error} (it was lost {AWAY / 60:g} minutes ago; the same command goes on)") from None
            time.sleep(PAUSE)

    def _start(self) -> None:
        self._process, self._pipe = _started()
        try:
            self._pipe.send(self._wish)
            word, rest = self._pipe.recv() if self._pipe.poll(STARTS) else ("refused", "Ray did not start in time")
        except (EOFError, OSError):
            word, rest = "refused", "Ray ended the process that speaks with it"
        if word == "refused":
            self._end()
            raise ImportError(rest) if "pip install" in rest else ValueError(rest)
        self.cores = int(rest)

    def _end(self, grace: float = 0.0) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._pipe.close()


def _started() -> tuple[subprocess.Popen[bytes], Connection]:
    """A new interpreter with this one's sys.path; Ctrl-C in the terminal does not reach it, only we do."""
    mine, its = Pipe()
    code = f"import sys; sys.path[:] = {sys.path!r}; from tmln.fleet.liaison import main; main({its.fileno()})"
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    process = subprocess.Popen(
        [sys.executable, "-c", code], pass_fds=[its.fileno()], start_new_session=True, env={**os.environ}, **quiet
    )
    its.close()
    return process, mine


def _connected() -> str | None:
    """Of the cluster that this process is connected to already, if it is."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    return str(ray.get_runtime_context().gcs_address)


def reach(address: str) -> None:
    """Ray would try for more than a minute: ask first whether anything is there, and speaks as Ray does."""
    if address in ("auto", "local"):
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (host and colon and port.isdigit()):
        raise ValueError(f"a Ray address is HOST:PORT, ray://HOST:PORT or auto, not {address!r}")
    remedy = "start one with `ray start --head`, or leave --address out for a local one"
    try:
        with socket.create_connection((host, int(port)), PATIENCE) as line:
            line.settimeout(PATIENCE)
            line.sendall(GREETING)
            reply = b"" if os.environ.get("RAY_USE_TLS") == "1" else line.recv(9)
    except (OSError, OverflowError) as error:
        raise ValueError(f"no Ray cluster at {address!r} ({error}); {remedy}") from None
    if reply[3:4] != b"\4" and os.environ.get("RAY_USE_TLS") != "1":
        raise ValueError(f"what answers at {address!r} is not Ray; {remedy}")
