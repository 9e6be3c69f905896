"""Handle Ctrl-C, SIGTERM and SIGHUP: save, and stop within two seconds.

Work that can stop well calls :func:`asked_to_stop` often, as a run does after every step, saves,
and ends by itself. If nothing has asked for 0.7 s (a Fisher pass, a test, reading pictures),
:class:`Interrupted` is raised there. Where no exception can be raised (one long call of a library)
the program is ended half a second later: files on the disk are whole at any moment, so this costs
no more than a kill does. Within :func:`saving` there is time to finish a write.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType
from typing import Any, NoReturn

# Ctrl-C, the end of a batch job, a closed terminal; the last one does not exist everywhere.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
ASKED, LAST = 0.7, 1.3  # seconds from the signal till an exception is raised, and till the program is ended
SAVING = 10.0  # seconds at most for a write that has begun; `docker stop` waits as long
CODE = 130  # of a program that was interrupted
AT_ONCE = "stopped at once; the same command goes on from what is saved"


class Interrupted(KeyboardInterrupt):
    """The program was asked to stop; the same command goes on.

    No ``except Exception`` takes it for an error.
    """


class _Owner:
    """The handler of the signals of this process, in the main thread except for :meth:`_watch`."""

    def __init__(self) -> None:
        self.ends = False  # whether this process is ours to end
        self.depth = self.pollers = self.writes = 0
        self._forget()

    def _forget(self) -> None:
        self.asked = threading.Event()
        self.heard = self.raised = self.due = self.lost = False

    @contextmanager
    def hold(self, ends: bool) -> Iterator[None]:
        """Handle the signals within the block; nested blocks install the handlers again."""
        before = {number: signal.signal(number, self._handle) for number in SIGNALS if not _is_nohup(number)}
        ended_before, self.ends = self.ends, self.ends or ends
        self.depth += 1
        try:
            with self._watched() if self.depth == 1 else nullcontext():
                yield
        finally:
            self.depth -= 1
            self.ends = ended_before
            if self.depth == 0:
                self._forget()
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Run a thread that receives signals at once, whatever the main thread does."""
        hears, tells = socket.socketpair()
        tells.setblocking(False)
        former = signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
        unraisable, sys.unraisablehook = sys.unraisablehook, self._again(sys.unraisablehook)
        done = threading.Event()
        watch = threading.Thread(
            target=self._watch, args=(hears, done, threading.get_ident()), name="tmln-signals", daemon=True
        )
        watch.start()
        try:
            yield
        finally:
            sys.unraisablehook = unraisable
            if not (self.ends and self.asked.is_set()):  # else the rest of the program has two seconds, too
                signal.set_wakeup_fd(former)
                done.set()
                tells.close()
                watch.join()
                hears.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.due and not self.asked.is_set():
            self.asked.set()
            if self.ends and _is_importing(frame):  # libraries that are cut off there raise all sorts of errors
                _leave()
            if self.pollers:
                return
        elif not self.due and self.raised and self.ends:  # once more, and the first one is not through yet
            _leave()
        self.due, self.raised = False, True
        raise Interrupted(AT_ONCE)

    def _watch(self, hears: socket.socket, done: threading.Event, main: int) -> None:
        while hears.recv(1) not in tuple(bytes([number]) for number in SIGNALS):
            if done.is_set():
                return
        if done.wait(ASKED):
            return
        interrupted, spent, idle = False, ASKED, ASKED
        while not done.is_set():
            if not self.writes and (self.lost or not (interrupted or self.heard or self.raised)):
                interrupted = True
                self.due, self.lost = True, False
                signal.pthread_kill(main, signal.SIGINT)
            done.wait(0.1)
            spent += 0.1
            idle += 0.0 if self.writes else 0.1  # who has saved still has the time that all have, to say so
            if self.ends and not done.is_set() and (idle > LAST or spent > SAVING):
                _leave()

    def _again(self, before: Callable[[Any], Any]) -> Callable[[Any], None]:
        """Return a hook that raises an interruption again which was lost in a finalizer."""

        def hook(lost: Any) -> None:
            if isinstance(lost.exc_value, Interrupted):
                self.lost = True
            else:
                before(lost)

        return hook

    def question(self) -> bool:
        self.heard = self.heard or self.asked.is_set()
        return self.asked.is_set()


_owner = _Owner()


def _is_nohup(number: int) -> bool:
    """Return whether this is SIGHUP and it was ignored from the start, as nohup does."""
    return number == getattr(signal, "SIGHUP", None) and signal.getsignal(number) == signal.SIG_IGN


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _leave() -> NoReturn:
    with suppress(OSError):
        cursor = "\x1b[?25h" if os.isatty(2) else ""  # a bar may have hidden it
        os.write(2, f"{cursor}tmln: {AT_ONCE}\n".encode())
    os._exit(CODE)


@contextmanager
def owned() -> Iterator[None]:
    """Handle signals in a program: raise :class:`Interrupted`, or end it after two seconds.

    Has no effect outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _owner.hold(ends=True):
        yield


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal has come, to be called often.

    A second signal interrupts at once. Call it after a step, not within one: the caller is
    expected to end soon.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    with _owner.hold(ends=False):
        _owner.pollers += 1
        try:
            yield _owner.question
        finally:
            _owner.pollers -= 1


@contextmanager
def saving() -> Iterator[None]:
    """Delay a first signal within the block until what is being written is whole."""
    _owner.writes += 1
    try:
        yield
    finally:
        _owner.writes -= 1
