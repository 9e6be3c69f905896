"""What a person sees of runs at work: plain lines where there is no terminal, a bar where there is one."""

from __future__ import annotations

import io

import pytest

from tmln.fleet.display import Display
from tmln.fleet.plan import Job
from tmln.lab.config import RunConfig
from tmln.lab.run import Moment

JOB = Job(RunConfig(benchmark="split-digits", method="tmln"))
RESULT = {"metrics": {"acc": 0.949}, "seconds": 2.0}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def moment(step: int) -> Moment:
    return Moment(task=1, tasks=5, epoch=2, epochs=10, step=step, steps=100, samples=64, loss=0.5)


def test_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr("tmln.fleet.display.time.monotonic", lambda: float(next(clock)))
    out = io.StringIO()
    with Display(2, out) as display:
        display.begin(JOB, finished=False)
        for step in range(1, 6):
            display.step(moment(step))
        display.end(JOB, RESULT)
        display.begin(Job(JOB.config, reference=True), finished=True)
    lines = out.getvalue().splitlines()
    assert lines[-2] == "[1/2] tmln, seed 0: ACC 94.9 in 2.0 s"
    assert lines[-1] == "[2/2] tmln, seed 0 (reference for INT): done before"
    # a step every ten seconds: 64 samples in 10 s, 98 steps to go
    assert "task 2/5 epoch 3/10 loss 0.500, step 2/100, 6 samples/s, 980 s left" in lines[0]


def test_a_bar_in_a_terminal() -> None:
    out = Terminal()
    with Display(1, out) as display:
        display.begin(JOB, finished=False)
        for step in range(1, 4):
            display.step(moment(step))
        display.end(JOB, {**RESULT, "diverged": "the loss is nan"})
    assert "diverged (the loss is nan)" in out.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_what_a_run_says_is_shown_not_obeyed(stream: type[io.StringIO]) -> None:
    out = stream()
    with Display(1, out) as display:
        display.begin(JOB, finished=False)
        display.end(JOB, {**RESULT, "diverged": "[red]loss\x1b]0;owned\x07"})
    assert r"diverged ([red]loss\x1b]0;owned\x07)" in out.getvalue()
    assert "\x1b]0" not in out.getvalue()
