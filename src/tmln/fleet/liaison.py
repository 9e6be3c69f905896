"""The process that speaks with Ray for a command: Ray ends the process that speaks with it when its head is lost."""

from __future__ import annotations

import importlib
import logging
import os
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from tmln.fleet.errand import Errand, Lease, do
from tmln.fleet.perform import seldom
from tmln.fleet.task import Outcome
from tmln.lab.footprint import read_size, shown
from tmln.stopping import asked_to_stop

if TYPE_CHECKING:
    from tmln.fleet.task import Message

PAUSE = 0.5  # seconds between two signs of life of a task
TICK = 0.2  # seconds between two looks at the tasks
ANSWER = 60.0  # seconds for the board, which is on this machine, to answer: else Ray is gone
OBJECT_STORE = 80 * 2**20  # bytes, near Ray's least: results are small, the rest is in the folder of runs


@dataclass(frozen=True)
class Wish:
    """What is asked of Ray: a cluster, and what each run may have of it."""

    address: str | None
    cpus: int | None  # of a cluster of its own
    threads: int
    gpus: float
    memory: int = 0  # bytes that each run asks for


def main(handle: int) -> None:
    """``handle`` is this end of a pipe: a wish and errands come in, ``ready`` or ``refused`` and messages go out."""
    parent = Connection(handle)
    wish: Wish = parent.recv()
    try:
        ray = import_ray()
        _connect(ray, wish)
        parent.send(("ready", _room(ray, wish)))
    except (ImportError, ValueError) as error:
        parent.send(("refused", str(error)))
        return
    driver = _Driver(ray, wish)
    try:
        while True:
            while parent.poll(0 if driver.busy else TICK):
                word, *rest = parent.recv()
                if word == "close":
                    return
                driver.stop() if word == "stop" else driver.submit(*rest)
            for said in driver.wait(TICK):
                parent.send(said)
    except (EOFError, OSError):  # the command has ended
        pass
    finally:
        driver.close()


class _Driver:
    """Each run has a CPU for every thread; Ray itself retries nothing, so that every loss is told."""

    def __init__(self, ray: Any, wish: Wish) -> None:
        self._ray = ray
        options = {"num_gpus": wish.gpus, "max_retries": 0} | ({"memory": wish.memory} if wish.memory else {})
        self._task = ray.remote(**options)(_task)
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        # with this process, not on a machine that may go: then all that is said would go with it
        self._board = ray.remote(num_cpus=0, scheduling_strategy=here)(Board).remote()
        self._names: dict[Any, str] = {}  # of the tasks by their futures

    @property
    def busy(self) -> bool:
        """Whether anything is there to wait for."""
        return bool(self._names)

    def submit(self, name: str, errand: Errand) -> None:
        """Sent at once; Ray begins it where so many cores are free."""
        sent = self._task.options(num_cpus=errand.task.threads)
        self._names[sent.remote(name, errand, self._board)] = name

    def wait(self, seconds: float) -> list[tuple[str, Message, bytes]]:
        """What tasks that are at work have said, and the outcomes of those that have ended, with their files."""
        if not self._names:
            return []
        futures = list(self._names)
        self._ray.wait(futures, num_returns=1, timeout=seconds)
        done, _ = self._ray.wait(futures, num_returns=len(futures), timeout=0)
        notes = self._ray.get(self._board.take.remote(), timeout=ANSWER)
        ended = [(self._names.pop(future), *self._outcome(future)) for future in done]
        return [(name, message, b"") for name, message in notes if name in self._names.values()] + ended

    def stop(self) -> None:
        """As Ctrl-C does: each run saves and ends."""
        for future in self._names:
            self._ray.cancel(future)  # reaches a running task as SIGINT does

    def close(self) -> None:
        """Without waiting; a cluster that was there before goes on."""
        for future in self._names:
            self._ray.cancel(future, force=True)
        self._ray.kill(self._board)
        self._ray.shutdown()

    def _outcome(self, future: Any) -> tuple[Outcome, bytes]:
        errors = self._ray.exceptions
        try:
            outcome, files = self._ray.get(future)
            return outcome, files
        except errors.TaskCancelledError:
            return Outcome("stopped", error="its task was cancelled"), b""
        except errors.RayTaskError as error:  # before or after the run: no tmln on that machine, say
            return Outcome("failed", error=str(error).strip().splitlines()[-1]), b""
        except errors.RayError as error:
            return Outcome("lost", error=f"its worker was lost ({str(error).strip().splitlines()[0]})"), b""


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


def _task(name: str, errand: Errand, board: Any) -> tuple[Outcome, bytes]:
    ray: Any = importlib.import_module("ray")
    lease, sent = Lease(), [board.note.remote(name, "begun")]

    def say(moment: Any) -> None:
        heard, sent[:] = ray.wait(sent, num_returns=len(sent), timeout=0)
        if heard:
            lease.hear()
        if len(sent) < 20:
            sent.append(board.note.remote(name, moment))

    with asked_to_stop() as stop:
        return do(errand, seldom(say, PAUSE), lambda: stop() or (errand.collect and lease.over))


def import_ray() -> Any:
    """Quiet, and without a word to its makers."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed")  # we tell of it ourselves
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.util.scheduling_strategies")
        return ray
    except ImportError as error:
        raise ImportError("the ray executor needs ray: pip install 'tmln[ray]', or --executor local") from error


def _connect(ray: Any, wish: Wish) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    logging.getLogger("ray").setLevel(logging.ERROR)  # it speaks before it has read its options
    if wish.address is None:
        local = {"num_cpus": wish.cpus, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
        ray.init("local", _node_ip_address="127.0.0.1", **local, **options)
        return
    try:
        ray.init(wish.address, **options)
    except Exception as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"no Ray cluster at {wish.address!r}: {text}") from None


def _room(ray: Any, wish: Wish) -> int:
    """The CPUs of the largest machine that has room; a task that fits nowhere would wait for ever."""
    asked = {"CPU": wish.threads, "GPU": wish.gpus, "memory": wish.memory}
    end = time.monotonic() + PAUSE  # machines that join in this moment
    while True:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        fitting = [int(node["CPU"]) for node in nodes if all(node.get(key, 0) >= many for key, many in asked.items())]
        if fitting:
            return max(fitting)
        if time.monotonic() > end:
            break
        time.sleep(0.1)
    largest = max((node.get("CPU", 0), node.get("GPU", 0), node.get("memory", 0)) for node in nodes)
    more = f" and {shown(wish.memory)} of memory" if wish.memory else ""
    theirs = f" and {shown(largest[2])}" if wish.memory else ""
    raise ValueError(
        f"no machine of the Ray cluster has {wish.threads} CPUs and {wish.gpus:g} GPUs{more}, which each run asks for; "
        f"the largest has {largest[0]:g} CPUs and {largest[1]:g} GPUs{theirs}"
    )


def asked_memory(text: str) -> int:
    """Bytes that a run asks of Ray: those of ``--memory``, none where it is not given."""
    return read_size(text) if text else 0
