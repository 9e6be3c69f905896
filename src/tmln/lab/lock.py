"""One process at a time on a run, on any file system: files made exclusively, no flock.

The lock is a folder of numbered files; whoever made the highest number holds it, until they write that it is free,
stop, or fall silent. The next owner makes the next number, which only one process can, and then removes the lower
ones; the highest is never removed, so that a slow process cannot make a number twice without noticing.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType

from tmln.lab.sharing import check, make_once
from tmln.writing import writing

STALE_AFTER = 60.0  # seconds without a sign of life from another machine
FREE = "\nfree\n"
TRIES = 1000  # of a lock that others are at in the same moment


class RunLocked(RuntimeError):
    """Another process is at work on this run."""


class LockLost(RuntimeError):
    """This process was silent for so long that another took its run over."""


LOCK = re.compile(r"[0-9]{8}|[1-9][0-9]{8,}")  # what f"{number:08d}" makes


@dataclass(frozen=True)
class Owner:
    """A process: ``machine`` tells boots and containers of one host name apart, ``started`` reused process numbers."""

    host: str
    machine: str
    pid: int
    started: str
    since: str

    @classmethod
    def this_process(cls) -> Owner:
        """With its start time: a process number alone may belong to another by now."""
        pid, since = os.getpid(), time.strftime("%Y-%m-%d %H:%M:%S")
        return cls(socket.gethostname(), _machine(), pid, started(pid) or "", since)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


def alive(owner: Owner) -> bool | None:
    """Whether the process is there; None if that cannot be told from here."""
    if not owner.machine or owner.machine != _machine():
        return None
    since = started(owner.pid)
    if since is not None:
        return since == owner.started
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's, hidden from us
        return None
    return None  # a process of that number is there, perhaps another one


def _machine() -> str:
    """This boot of this machine and, in a container, this container; empty where process numbers tell nothing."""
    if os.name == "nt":
        return ""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def started(pid: int) -> str | None:
    """Start of a process in ticks since boot, empty if it has ended; None where there is no /proc to tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()  # the name before it can hold anything
    return "" if state in "ZX" else rest[18]


class RunLock:
    """``with RunLock(folder):`` or :class:`RunLocked`.

    A lock is taken over if its process has ended, or, of other machines, has given no sign of life for ``stale_after``
    seconds; a process of this machine that is there keeps it, however silent (it may be suspended).
    """

    def __init__(self, folder: str | os.PathLike[str], stale_after: float = STALE_AFTER) -> None:
        self.folder, self.stale_after = Path(folder), stale_after
        self.lost = False
        self._mine: Path | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        """:class:`RunLocked` if a living process holds it; that of a dead one is taken over."""
        if self._mine is not None:
            raise RuntimeError(f"lock {self.folder} is held by this object already")
        with writing(self.folder.parent):  # the run, which is what the user knows of
            self.folder.mkdir(parents=True, exist_ok=True)
            for _ in range(TRIES):
                if self._try():
                    break
            else:
                check(self.folder)  # says what is wrong with its file system
                raise RunLocked(f"run {self.folder.parent} is fought for by many processes; try again in a moment")
        self.lost = False
        self._stop.clear()
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat of {self.folder}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Idempotent. Whoever has taken over in the meantime keeps it."""
        if self._mine is None:
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        mine, self._mine = self._mine, None
        # Another took over; or nothing can be written there any more, which whoever works on the run has been told of
        # already. Then the lock is free when this process ends.
        with suppress(OSError):
            handle = os.open(mine, os.O_WRONLY)
            try:
                os.lseek(handle, -len(FREE), os.SEEK_END)
                os.write(handle, FREE.encode())
            finally:
                os.close(handle)

    @property
    def held(self) -> bool:
        """By this object, as far as it knows."""
        return self._mine is not None

    def check(self) -> None:
        """Raise :class:`LockLost` if another process has taken over; to be called before results are written."""
        if self._mine is None or self.lost or self._numbers()[:1] != [int(self._mine.name)]:
            raise LockLost(
                f"run {self.folder.parent} is no longer this process's: it was silent for more than "
                f"{self.stale_after:g} s and another took over; leave the run to that one"
            )

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _try(self) -> bool:
        """Take the lock, or raise; False if another process was at it in the same moment."""
        last = next(iter(self._numbers()), 0)
        if last and not self._abandoned(self.folder / f"{last:08d}"):
            return False
        path = self.folder / f"{last + 1:08d}"
        # with the room that its release will take: on a full disk it could not grow
        text = json.dumps(asdict(Owner.this_process())) + " " * len(FREE)
        if not make_once(path, text):
            return False
        numbers = self._numbers()
        if numbers[:1] != [last + 1]:  # this number was used before, and the file of that time removed
            path.unlink(missing_ok=True)
            return False
        for number in numbers[1:]:
            (self.folder / f"{number:08d}").unlink(missing_ok=True)
        self._mine = path
        return True

    def _abandoned(self, path: Path) -> bool:
        """Whether this lock is there for the taking; raises if somebody holds it, and says False if it has gone."""
        try:
            text, beat = path.read_text(encoding="utf-8", errors="replace"), path.stat().st_mtime
        except FileNotFoundError:
            return False
        if text.endswith(FREE):
            return True
        owner = _read_owner(text)
        there = alive(owner) if owner else None
        silent = self._now() - beat
        if there is False or (there is None and silent > self.stale_after):
            return True
        left = max(1.0, self.stale_after - silent)
        remedy = "stop it, or let it finish" if there else f"if it has died, try again in {left:.0f} s"
        raise RunLocked(
            f"run {self.folder.parent} is being worked on by {owner or 'another process'} "
            f"(last sign of life {max(0.0, silent):.0f} s ago); {remedy}"
        )

    def _now(self) -> float:
        """The time by the clock of the file system, which may be another machine's."""
        probe = self.folder / f".clock-{uuid.uuid4().hex}"
        probe.touch()
        try:
            return probe.stat().st_mtime
        finally:
            probe.unlink()

    def _numbers(self) -> list[int]:
        """Highest first; files that are called otherwise than ours are not."""
        return sorted((int(path.name) for path in self.folder.iterdir() if LOCK.fullmatch(path.name)), reverse=True)

    def _beat(self) -> None:
        assert self._mine is not None
        while not self._stop.wait(self.stale_after / 6):
            with suppress(OSError):  # a network file system that is away for a moment
                self.lost = not self._mine.exists()
                if self.lost:
                    return
                os.utime(self._mine)


def _read_owner(text: str) -> Owner | None:
    """None of a file that its process had no time to fill."""
    try:
        values = json.loads(text)
        return Owner(**{field.name: values[field.name] for field in fields(Owner)})
    except (ValueError, TypeError, KeyError):
        return None
