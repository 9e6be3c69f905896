"""Runs as tasks of a Ray cluster, an existing one or a local one. A head that is lost and comes back loses no run."""

from __future__ import annotations

import importlib.util
import os
import pickle
import socket
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tmln.executors.bundle import RESULT, pack, unpack
from tmln.executors.errand import Errand
from tmln.executors.interfaces import Outcome, RunRequest
from tmln.executors.line import Line
from tmln.executors.wish import Wish, import_ray
from tmln.experiments.config import run_id
from tmln.experiments.lock import LockLost, RunLocked
from tmln.experiments.memory_estimate import read_size
from tmln.experiments.reference_runs import reference_config
from tmln.experiments.store import Run, Store
from tmln.signals import saving
from tmln.writing import CannotWrite, writing

if TYPE_CHECKING:
    from tmln.executors.config import ExecutorConfig
    from tmln.executors.interfaces import Take

PATIENCE = 5.0  # seconds for a cluster's address to answer
AWAY = 900.0  # seconds that a cluster that was there may be away
PAUSE = 1.0  # seconds between two tries to reach it again
QUEUE = 1000  # tasks handed to Ray at one time: enough for it to see that more machines are wanted
HELD = 64  # the same of runs that are collected: each has a lock here
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # of RFC 9113, with empty settings


class RayPool:
    """Hands tasks to a process of its own, which speaks with Ray (:mod:`tmln.executors.liaison`)."""

    shared = False

    def __init__(self, config: ExecutorConfig, here: int) -> None:
        """Connect as ``config`` says; ``here`` are the cores of this machine."""
        if importlib.util.find_spec("ray") is None:
            import_ray()
        self.capacity = config.workers or (HELD if config.collect else QUEUE)
        self.collect, self.fetch, threads = config.collect, config.fetch, config.threads or 1
        cpus = max(here, threads * config.workers) if config.workers else None
        memory = read_size(config.memory) if config.memory else 0
        self._wish = Wish(config.address or _connected(), cpus, threads, config.gpus, memory)
        self._open: dict[str, RunRequest] = {}
        self._unsent: dict[str, RunRequest] = {}  # of them those that Ray does not know of
        self._begun: set[str] = set()
        self._held: dict[str, Run] = {}
        self._tokens: dict[str, Path] = {}
        self._lost_at = self._again_at = 0.0
        self._stopping = False
        if config.address is not None:
            reach(config.address)
        self._line: Line | None = Line(self._wish)
        self.cores = self._line.cores

    def submit(self, name: str, task: RunRequest) -> None:
        """Sent at once, or as soon as the cluster is there again."""
        self._open[name] = self._unsent[name] = task

    def wait(self, seconds: float, take: Take) -> None:
        """What Ray's tasks have said. A cluster that is lost gives its runs back, and is waited for."""
        if self._stopping:
            for name in list(self._open if self._line is None else self._unsent):
                self._close(name)
                take(name, Outcome("stopped", error="it was not begun"))
        if self._line is None:
            self._return(seconds)
            return
        tasks, self._unsent = self._unsent, {}
        errands = {name: errand for name, task in tasks.items() if (errand := self._errand(name, task, take))}
        try:
            for name, errand in errands.items():
                self._line.tell("do", name, errand.task.threads, pickle.dumps(errand))
            heard = self._line.heard(seconds)
        except (EOFError, OSError):
            self._lose(self._line, take)
            return
        for name, message in heard:
            if name in self._open:
                self._hand_on(name, message, take)

    def stop(self) -> None:
        """Each run saves and ends; none is begun any more."""
        self._stopping = True
        with suppress(OSError):  # lost in this moment, which wait() will see
            if self._line is not None:
                self._line.tell("stop")

    def close(self) -> None:
        """Without waiting for runs; a cluster that was there before goes on."""
        with saving():
            if self._line is not None:
                self._line.close()
            self._line = None
        for name in list(self._open):
            self._close(name)
        for token in self._tokens.values():
            with suppress(OSError):
                token.unlink(missing_ok=True)

    def _errand(self, name: str, task: RunRequest, take: Take) -> Errand | None:
        """None of a run that cannot be sent, or need not: its outcome is told."""
        data = os.environ.get("TMLN_DATA")
        if not self.collect:
            if task.root not in self._tokens:
                self._tokens[task.root] = token = Path(task.root) / f".command-{uuid.uuid4().hex}"
                with writing(token):
                    token.touch()
            return Errand(task, data, self.fetch, token=self._tokens[task.root].name)
        try:
            run = Store(task.root).open(task.job.config)
            run.lock.acquire()
            self._held[name] = run
            if run.result is None:
                wanted = reference_config(task.job.config, task.terms.oracle)
                names = [] if wanted is None else [run_id(wanted)]
                sent = {other: pack(Path(task.root) / other, ("config.yaml", RESULT)) for other in names}
                return Errand(task, data, self.fetch, True, sent={**sent, run.name: pack(run.path)})
            outcome = Outcome("finished", run.result)
        except RunLocked as error:
            outcome = Outcome("locked", error=str(error))
        except CannotWrite as error:
            outcome = _unwritten(error)
        self._close(name)
        take(name, outcome)
        return None

    def _hand_on(self, name: str, message: Any, take: Take) -> None:
        if isinstance(message, bytes):
            message = pickle.loads(message)
        if isinstance(message, tuple):
            message = self._collected(self._held.get(name), *message)
        if message == "begun":
            self._begun.add(name)
        elif isinstance(message, Outcome):
            self._close(name)
        take(name, message)

    def _collected(self, run: Run | None, outcome: Outcome, files: bytes) -> Outcome:
        try:
            if run is not None and files:
                run.lock.check()
                unpack(files, run.path)
        except LockLost as error:
            return Outcome("locked", error=str(error))
        except CannotWrite as error:
            return _unwritten(error)
        return outcome

    def _close(self, name: str) -> None:
        for known in (self._open, self._unsent):
            known.pop(name, None)
        self._begun.discard(name)
        if name in self._held:
            self._held.pop(name).lock.release()

    def _lose(self, line: Line, take: Take) -> None:
        """What had begun is given back; what waited for its turn does so again, without a word."""
        line.end()
        self._line, self._lost_at = None, time.monotonic()
        for name in list(self._begun) or list(self._open)[:1]:
            self._close(name)
            take(name, Outcome("away", error="the Ray cluster was lost, and is waited for"))
        for run in self._held.values():
            run.lock.release()
        self._held.clear()
        self._unsent.update(self._open)

    def _return(self, seconds: float) -> None:
        """Try now and then to reach the cluster again; an error if it has been away for too long."""
        if self._stopping or time.monotonic() < self._again_at:
            time.sleep(seconds)
            return
        try:
            if self._wish.address is not None:
                reach(self._wish.address)
            self._line = Line(self._wish)
        except ValueError as error:
            if time.monotonic() - self._lost_at > AWAY:
                raise ValueError(f"{error} (it was lost {AWAY / 60:g} minutes ago; the same command goes on)") from None
            self._again_at = time.monotonic() + PAUSE


def _unwritten(error: CannotWrite) -> Outcome:
    return Outcome("unwritable" if error.everywhere else "failed", error=str(error), cause=error)


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
