"""The process that speaks with Ray for a command: Ray ends the process that speaks with it when its head is lost.

What the command and the machines tell each other goes through it, and through Ray, as sealed letters (bytes): neither
this process nor the board has to load torch, which takes longer than all that Ray does.
"""

from __future__ import annotations

import importlib
import pickle
import queue
import threading
import time
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

from tmln.executors.interfaces import Outcome
from tmln.executors.wish import Wish, connect, first_line, import_ray, room
from tmln.signals import asked_to_stop

PAUSE = 0.5  # seconds between two signs of life of a task
TICK = 0.2  # seconds between two looks at the tasks
LOOK = 2.0  # seconds between two looks at the machines
UNHEARD = 20  # signs of life that may be without an answer


def main(handle: int) -> None:
    """``handle`` is this end of a pipe: a wish and errands come in, ``ready`` or ``refused`` and messages go out."""
    parent = Connection(handle)
    try:
        wish: Wish = parent.recv()
        driver, inbox = _driver(parent, wish), queue.SimpleQueue[Any]()
        if driver is None:
            return
    except (EOFError, OSError):  # the command has ended
        return
    threading.Thread(target=_listen, args=(parent, inbox), daemon=True).start()
    try:
        while _obey(driver, inbox):
            for said in driver.wait(TICK):
                parent.send(said)
    except OSError:
        pass
    finally:
        driver.close()


def _driver(parent: Connection, wish: Wish) -> _Driver | None:
    """None where Ray cannot be had as it is wished for; the command is told either way."""
    try:
        ray = import_ray()
        connect(ray, wish)
        most, driver = room(ray, wish), _Driver(ray, wish)
    except ImportError as error:
        parent.send(("lacking", str(error)))
    except Exception as error:  # of which Ray has many
        parent.send(("refused", first_line(error)))
    else:
        parent.send(("ready", most))
        return driver
    return None


def _listen(parent: Connection, inbox: queue.SimpleQueue[Any]) -> None:
    """All that comes in is read at once: two that wait for each other to read would wait for ever."""
    try:
        while True:
            inbox.put(parent.recv())
    except (EOFError, OSError):
        inbox.put(("close",))


def _obey(driver: _Driver, inbox: queue.SimpleQueue[Any]) -> bool:
    """What the command has asked for by now; False once it wants no more."""
    try:
        while True:
            word, *rest = inbox.get(timeout=0 if driver.busy else TICK)
            if word == "close":
                return False
            driver.stop() if word == "stop" else driver.submit(*rest)
    except queue.Empty:
        return True


@dataclass
class _Sent:
    """A task that Ray has: of which run, and, once it has said so, on which machine."""

    name: str
    machine: str = ""


class _Driver:
    """Each run has a CPU for every thread; Ray itself retries nothing, so that every loss is told."""

    def __init__(self, ray: Any, wish: Wish) -> None:
        self._ray = ray
        asked = {"num_gpus": wish.gpus, "max_retries": 0} | ({"memory": wish.memory} if wish.memory else {})
        self._task = ray.remote(**asked)(_task)
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        # with this process, not on a machine that may go: then all that is said would go with it
        self._board = ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=here)(Board).remote()
        self._asked: Any = None  # what the board has to say
        self._numbers = count()
        self._sent: dict[int, _Sent] = {}
        self._futures: dict[Any, int] = {}
        self._looked = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether anything is there to wait for."""
        return bool(self._futures)

    def submit(self, name: str, threads: int, letter: bytes) -> None:
        """Sent at once; Ray begins it where so many cores are free."""
        number = next(self._numbers)
        self._sent[number] = _Sent(name)
        self._futures[self._task.options(num_cpus=threads).remote(number, letter, self._board)] = number

    def wait(self, seconds: float) -> list[tuple[str, bytes | Outcome]]:
        """What tasks that are at work have said, and how those have ended that have."""
        if not self._futures:
            return []
        futures = list(self._futures)
        self._ray.wait(futures, num_returns=1, timeout=seconds)
        done, _ = self._ray.wait(futures, num_returns=len(futures), timeout=0)
        ended = [(self._forget(future).name, self._outcome(future)) for future in done]
        return self._notes() + ended + self._cut_off()

    def stop(self) -> None:
        """As Ctrl-C does: each run saves and ends."""
        for future in self._futures:
            self._ray.cancel(future)  # reaches a running task as SIGINT does

    def close(self) -> None:
        """Without waiting; a cluster that was there before goes on."""
        for future in self._futures:
            self._ray.cancel(future, force=True)
        self._ray.kill(self._board)
        self._ray.shutdown()

    def _forget(self, future: Any) -> _Sent:
        return self._sent.pop(self._futures.pop(future))

    def _notes(self) -> list[tuple[str, bytes | Outcome]]:
        """Not waited for: on a busy machine the board comes late, and nothing depends on it."""
        self._asked = self._asked or self._board.take.remote()
        if not self._ray.wait([self._asked], timeout=0)[0]:
            return []
        asked, self._asked = self._asked, None
        try:
            notes: list[tuple[int, str, bytes]] = self._ray.get(asked)
        except self._ray.exceptions.RayError:  # its process was killed, and another is started
            return []
        for number, machine, _ in notes:
            if number in self._sent:
                self._sent[number].machine = machine
        return [(self._sent[number].name, letter) for number, _, letter in notes if number in self._sent]

    def _cut_off(self) -> list[tuple[str, bytes | Outcome]]:
        """What machines were at that Ray has given up, and does not let in again: it tells of it minutes later."""
        if time.monotonic() - self._looked < LOOK:
            return []
        there = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        self._looked = time.monotonic()
        sent = {future: self._sent[number] for future, number in self._futures.items()}
        gone = [future for future, task in sent.items() if task.machine and task.machine not in there]
        lost = Outcome("lost", error="its worker was lost (its machine is dead or cut off)")
        return [(self._forget(future).name, lost) for future in gone]

    def _outcome(self, future: Any) -> bytes | Outcome:
        errors = self._ray.exceptions
        try:
            letter: bytes = self._ray.get(future)
            return letter
        except errors.TaskCancelledError:
            return Outcome("stopped", error="its task was cancelled")
        except errors.RayTaskError as error:  # before or after the run: no tmln on that machine, say
            return Outcome("failed", error=str(error).strip().splitlines()[-1])
        except errors.RayError as error:
            return Outcome("lost", error=f"its worker was lost ({first_line(error).partition('. ')[0].rstrip('.')})")


class Board:
    """An actor that tasks leave their latest moments with."""

    def __init__(self) -> None:
        self.notes: list[tuple[int, str, bytes]] = []

    def note(self, number: int, machine: str, letter: bytes) -> bool:
        """Called by workers; that it answers tells them that the command is there."""
        self.notes.append((number, machine, letter))
        return True

    def take(self) -> list[tuple[int, str, bytes]]:
        """What was noted since the last call."""
        notes, self.notes = self.notes, []
        return notes


def _task(number: int, letter: bytes, board: Any) -> bytes:
    """On one of Ray's machines: the errand, and an outcome with files, both sealed."""
    ray: Any = importlib.import_module("ray")
    note = partial(board.note.remote, number, ray.get_runtime_context().get_node_id())
    sent = [note(pickle.dumps("begun"))]
    from tmln.executors.errand import Lease, do
    from tmln.executors.run_job import seldom

    lease = Lease()

    def say(moment: Any) -> None:
        answered, sent[:] = ray.wait(sent, num_returns=len(sent), timeout=0) if sent else ([], [])
        if any(_heard(ray, answer) for answer in answered):
            lease.hear()
        if len(sent) < UNHEARD:
            sent.append(note(pickle.dumps(moment)))

    with asked_to_stop() as stop:
        errand = pickle.loads(letter)
        return pickle.dumps(do(errand, seldom(say, PAUSE), lambda: stop() or (errand.collect and lease.over)))


def _heard(ray: Any, answer: Any) -> bool:
    try:
        return bool(ray.get(answer))
    except ray.exceptions.RayError:
        return False
