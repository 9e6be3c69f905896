"""Runs as tasks of a Ray cluster, an existing one or a local one; the folder of runs is one that all machines share."""

from __future__ import annotations

import importlib
import logging
import os
import socket
import time
from typing import TYPE_CHECKING, Any

from tmln.fleet.perform import perform, seldom
from tmln.fleet.task import Outcome, Task
from tmln.stopping import asked_to_stop

if TYPE_CHECKING:
    from tmln.fleet.task import Message, Take

PATIENCE = 5.0  # seconds for a cluster's address to answer
PAUSE = 0.5  # seconds between two signs of life of a task
OBJECT_STORE = 80 * 2**20  # bytes, near Ray's least: results are small, the rest is in the folder of runs
QUEUE = 1000  # tasks handed to Ray at one time: enough for it to see that more machines are wanted
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # of RFC 9113, with empty settings


class RayPool:
    """Each run has a CPU for every thread, and ``gpus``; Ray itself retries nothing, so that every loss is told."""

    shared = False

    def __init__(self, workers: int | None, threads: int | None, gpus: float, address: str | None, here: int) -> None:
        """``threads`` of each run as far as they are given; ``here`` are the cores of this machine."""
        self._ray = ray = _import_ray()
        self.capacity = workers or QUEUE
        self._ours = not ray.is_initialized()
        if self._ours:
            _connect(ray, address, max(here, (threads or 1) * workers) if workers else None)
        self.cores = _room(ray, threads or 1, gpus)
        self._task = ray.remote(num_gpus=gpus, max_retries=0)(_task)
        self._board = ray.remote(num_cpus=0)(Board).remote()
        self._names: dict[Any, str] = {}  # of the tasks by their futures

    def submit(self, name: str, task: Task) -> None:
        """Sent at once; Ray begins it where so many cores are free."""
        sent = self._task.options(num_cpus=task.threads)
        self._names[sent.remote(name, task, self._board, os.environ.get("TMLN_DATA"))] = name

    def wait(self, seconds: float, take: Take) -> None:
        """What tasks that are at work have said, and the outcomes of those that have ended."""
        if not self._names:
            time.sleep(seconds)
            return
        futures = list(self._names)
        self._ray.wait(futures, num_returns=1, timeout=seconds)
        done, _ = self._ray.wait(futures, num_returns=len(futures), timeout=0)
        messages: list[tuple[str, Message]] = self._ray.get(self._board.take.remote())
        ended = {self._names.pop(future): self._outcome(future) for future in done}
        for name, message in messages:
            if name in self._names.values():
                take(name, message)
        for name, outcome in ended.items():
            take(name, outcome)

    def stop(self) -> None:
        """As Ctrl-C does: each run saves and ends."""
        for future in self._names:
            self._ray.cancel(future)  # reaches a running task as SIGINT does

    def close(self) -> None:
        """Without waiting; a cluster that was there before goes on."""
        for future in self._names:
            self._ray.cancel(future, force=True)
        self._ray.kill(self._board)
        if self._ours:
            self._ray.shutdown()

    def _outcome(self, future: Any) -> Outcome:
        errors = self._ray.exceptions
        try:
            outcome: Outcome = self._ray.get(future)
            return outcome
        except errors.TaskCancelledError:
            return Outcome("stopped", error="its task was cancelled")
        except errors.RayTaskError as error:  # before or after the run: no tmln on that machine, say
            return Outcome("failed", error=str(error).strip().splitlines()[-1])
        except errors.RayError as error:
            return Outcome("lost", error=f"its worker was lost ({str(error).strip().splitlines()[0]})")


class Board:
    """An actor that tasks leave their latest moments with."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, Message]] = []

    def note(self, name: str, message: Message) -> None:
        """Called by workers."""
        self.notes.append((name, message))

    def take(self) -> list[tuple[str, Message]]:
        """What was noted since the last call."""
        notes, self.notes = self.notes, []
        return notes


def _task(name: str, task: Task, board: Any, data: str | None) -> Outcome:
    if data is not None:
        os.environ.setdefault("TMLN_DATA", data)
    board.note.remote(name, "begun")
    with asked_to_stop() as stop:
        return perform(task, seldom(lambda moment: board.note.remote(name, moment), PAUSE), stop)


def _import_ray() -> Any:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed")  # we tell of it ourselves
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError("the ray executor needs ray: pip install 'tmln[ray]', or --executor local") from error


def _connect(ray: Any, address: str | None, cpus: int | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    logging.getLogger("ray").setLevel(logging.ERROR)  # it speaks before it has read its options
    if address is None:
        local = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
        ray.init("local", _node_ip_address="127.0.0.1", **local, **options)
        return
    reach(address)
    try:
        ray.init(address, **options)
    except Exception as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"no Ray cluster at {address!r}: {text}") from None


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


def _room(ray: Any, cpus: int, gpus: float) -> int:
    """The CPUs of the largest machine that has room; a task that fits nowhere would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    fitting = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus]
    if not fitting:
        largest = max((node.get("CPU", 0), node.get("GPU", 0)) for node in nodes)
        raise ValueError(
            f"no machine of the Ray cluster has {cpus} CPUs and {gpus:g} GPUs, which each run asks for; "
            f"the largest has {largest[0]:g} CPUs and {largest[1]:g} GPUs"
        )
    return max(fitting)
