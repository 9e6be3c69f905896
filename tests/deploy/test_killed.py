"""tmln learn as a process: Ctrl-C and kill -9 leave the state as it was, and the same command goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tmln.deploy.learn import LearnRequest, StepProgress, learn_into
from tmln.learner.checkpoint import load_file
from tmln.signals import Interrupted

EPOCHS = 100_000  # no process of this test comes to the end
PATIENCE = 300.0  # seconds; only a hang takes so long


def until(done: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def place(path: Path) -> tuple[int, int]:
    found = load_file(path)["state"]["place"]
    return int(found["epoch"]), int(found["step"])


@pytest.mark.usefixtures("warm")
def test_stopped_and_killed_it_goes_on(weeks: Path, tmp_path: Path) -> None:
    state, beside = tmp_path / "shop.tmln", tmp_path / ".shop.tmln.learning"
    learn_into(state, weeks / "week1", LearnRequest(epochs=1))
    before = state.read_bytes()
    words = ["learn", "--state", str(state), "--data", str(weeks / "week2"), "--epochs", str(EPOCHS)]
    reached = (0, 0)
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        with subprocess.Popen(
            [sys.executable, "-m", "tmln", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            until(lambda: beside.exists() and place(beside) > reached, process)  # noqa: B023
            process.send_signal(number)
            _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, said
        if number == signal.SIGINT:
            assert "the same command goes on from" in said
        assert state.read_bytes() == before
        assert place(beside) > reached
        reached = place(beside)
    infos: list[StepProgress] = []
    with pytest.raises(Interrupted):
        learn_into(state, weeks / "week2", LearnRequest(epochs=EPOCHS), infos.append, lambda: True)
    assert len(infos) == 1
    assert place(beside) > reached
    assert state.read_bytes() == before
