# ruff: noqa: PT012 (a signal is raised and waited for within the block)
"""Signals: asked for, raised where nobody asks, final where nothing else helps; a write that has begun is finished.

No test measures a time. What a signal should end would go on for ever.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.experiments.killing import PATIENCE
from tmln import signals
from tmln.signals import AT_ONCE, CODE, SIGNALS, Interrupted, asked_to_stop, owned, saving


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "ASKED", 0.05)


def for_ever() -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        time.sleep(0.01)
    raise AssertionError("nobody came")


@pytest.mark.parametrize("number", SIGNALS)
def test_where_nobody_asks_it_is_raised(number: signal.Signals, request: pytest.FixtureRequest) -> None:
    if number == getattr(signal, "SIGHUP", None):  # under nohup it is ignored, and stays so
        ignored = signal.signal(number, signal.SIG_DFL)
        request.addfinalizer(lambda: signal.signal(number, ignored))
    before = [signal.getsignal(each) for each in SIGNALS]
    with pytest.raises(Interrupted, match="the same command goes on"), asked_to_stop():
        signal.raise_signal(number)
        for_ever()
    assert [signal.getsignal(each) for each in SIGNALS] == before
    with asked_to_stop() as stop:
        assert not stop(), "what was asked of others is forgotten"


def test_who_has_asked_is_left_alone() -> None:
    with asked_to_stop() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop()
        time.sleep(0.3)  # no exception, however long this takes
        assert stop()


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="of POSIX")
def test_a_program_under_nohup_keeps_ignoring_a_closed_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with asked_to_stop() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_write_that_has_begun_is_finished_first() -> None:
    done = []
    with pytest.raises(Interrupted), asked_to_stop():
        with saving():
            signal.raise_signal(signal.SIGTERM)
            time.sleep(0.3)
            done.append("whole")
        for_ever()
    assert done == ["whole"]


def test_no_library_takes_it_for_an_error_of_its_own() -> None:
    assert not issubclass(Interrupted, Exception)
    with pytest.raises(Interrupted), asked_to_stop():
        try:
            signal.raise_signal(signal.SIGINT)
            for_ever()
        except Exception as error:  # as decoders of images do
            raise AssertionError from error


def test_an_interruption_that_is_lost_comes_again() -> None:
    """One in a finaliser is printed by Python and thrown away."""

    class Grave:
        def __del__(self) -> None:
            for_ever()

    with pytest.raises(Interrupted), asked_to_stop():
        signal.raise_signal(signal.SIGTERM)
        grave = Grave()
        del grave
        for_ever()


def test_other_threads_cannot_own_signals_and_are_not_asked() -> None:
    found: list[bool] = []

    def work() -> None:
        with owned(), asked_to_stop() as stop:
            found.append(stop())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]


# -- whole programs ----------------------------------------------------------------------------------------------------

# deaf() releases Python's lock and hears nothing: no exception gets in. Its length is that of hours.
PROGRAM = """
import hashlib, os, signal, sys, threading, time
from tmln.signals import asked_to_stop, owned
def ask(): os.kill(os.getpid(), signal.NAME)
def later(): threading.Timer(0.5, ask).start()
def wait():
    while True: time.sleep(0.01)
def deaf(): hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
def handled():
    try: ask(); wait()
    finally: deaf()
def heard():
    with asked_to_stop() as stop: ask(); stop(); wait()
def unheard():
    with asked_to_stop(): later(); deaf()
def imported():
    sys.path.insert(0, sys.argv[1])
    import halfway
def main(work):
    try:
        with owned(): work()
    except KeyboardInterrupt as stopped:
        sys.exit(print("tmln:", stopped, file=sys.stderr) or 130)
"""
WORKS = {
    "nothing that could ask": "lambda: (ask(), wait())",
    "one long call of a library": "lambda: (later(), deaf())",
    "one long call between two questions": "unheard",
    "clearing away after an interruption": "handled",
    "work that has asked and does not end": "heard",
    "an import": "imported",
}


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("work", WORKS)
def test_a_program_ends_with_one_line_whatever_it_is_at(work: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "halfway.py").write_text(
        f"import os, signal\ntry:\n  os.kill(os.getpid(), signal.{name})\n  while True: pass\n"
        "except BaseException:\n  raise ImportError('it looks as if something else were wrong')\n"
    )
    code = f"{PROGRAM.replace('NAME', name)}\nmain({WORKS[work]})"
    command = [sys.executable, "-c", code, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert run.returncode == CODE, run.stderr
    assert run.stderr == f"tmln: {AT_ONCE}\n"


@pytest.mark.parametrize(("after", "left"), [(5, False), (8, True)])
def test_who_has_saved_has_the_time_that_all_have(after: int, left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In ticks of a tenth of a second, without a clock: a write of 20, then so many till the program has ended."""
    monkeypatch.setattr(signals, "ASKED", 0.7)
    owner, ticks, leaves = signals._Owner(), [1] * 20 + [0] * after, list[bool]()
    owner.ends = owner.heard = True

    class Done:
        def wait(self, seconds: float) -> bool:
            owner.writes = ticks.pop(0) if ticks else 0
            return False

        def is_set(self) -> bool:
            return not ticks

    class Hears:
        def recv(self, most: int) -> bytes:
            return bytes([signal.SIGINT])

    monkeypatch.setattr(signals, "_leave", lambda: leaves.append(True))
    owner._watch(Hears(), Done(), 0)  # type: ignore[arg-type]
    assert bool(leaves) == left
