"""How far runs have come, as told: counts, time left, a bar for one, and a table of many that fits the terminal."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from tmln.executors.execute import Event
from tmln.executors.plan import Job
from tmln.executors.progress_display import ProgressDisplay, ProgressState, duration
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.result import Result
from tmln.experiments.run import StepInfo

JOBS = [Job(RunConfig(benchmark="split-digits", method="tmln", seed=seed)) for seed in range(4)]
LABELS = {run_id(job.config): (job, job.label) for job in JOBS}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def info(step: int, steps: int = 100) -> StepInfo:
    return StepInfo(task=1, tasks=5, epoch=2, epochs=10, step=step, steps=steps, samples=64, loss=0.5)


def result(acc: float = 0.949, seconds: float = 40.0, **more: Any) -> Result:
    return Result("split-digits", "tmln", 0, {}, said={"acc": acc}, seconds=seconds, **more)


def test_the_time_left_by_hand() -> None:
    clock = Clock()
    progress = ProgressState(LABELS, clock)
    assert progress.seconds_left() is None
    assert str(progress) == "4 runs: 0 finished, 4 to go"
    progress.update(Event("started", JOBS[0]))
    progress.update(Event("started", JOBS[1]))
    clock.now = 100.0
    progress.update(Event("step", JOBS[0], info=info(20)))  # resumed at 20
    clock.now = 110.0
    progress.update(Event("step", JOBS[0], info=info(40)))  # half a second a step: 60 steps in 30 s, 100 in 50 s
    assert progress.all[run_id(JOBS[0].config)].seconds_left(110.0) == 30.0
    assert progress.all[run_id(JOBS[0].config)].seconds_left(115.0) == 25.0
    assert progress.seconds_left() == (30 + 50 + 2 * 50) / 2
    assert str(progress) == "4 runs: 0 finished, 2 running, 2 to go, about 90 s left"
    progress.update(Event("finished", JOBS[1], result=result(seconds=70.0)))  # wholes: 50 and 70
    assert progress.seconds_left() == 30 + 2 * 60
    progress.update(Event("failed", JOBS[2], text="no data"))
    progress.update(Event("skipped", JOBS[3], result=result(diverged="the loss is nan", seconds=60.0)))
    assert progress.seconds_left() == 30
    assert str(progress) == "4 runs: 1 finished, 1 diverged, 1 running, 1 failed, about 30 s left"
    progress.update(Event("retried", JOBS[0], text="killed"))
    assert progress.seconds_left() == (70 + 60) / 2  # what it had done is not counted on
    progress.update(Event("started", JOBS[0]))
    progress.update(Event("finished", JOBS[0], result=result()))
    assert str(progress) == "4 runs: 2 finished, 1 diverged, 1 failed"


def test_durations() -> None:
    given = (0.44, 42, 150, 7200, 3 * 86400)
    assert [duration(seconds) for seconds in given] == ["0.4 s", "42 s", "2 min", "2.0 h", "3.0 days"]


def test_plain_lines() -> None:
    clock, out = Clock(), io.StringIO()
    with ProgressDisplay(LABELS, out, clock) as table:
        table.update(Event("skipped", JOBS[3], result=result()))
        table.update(Event("started", JOBS[0]))
        table.update(Event("warning", JOBS[0], text="too strong"))
        clock.now = 20.0
        table.update(Event("step", JOBS[0], info=info(1)))
        table.update(Event("step", JOBS[0], info=info(2)))
        table.update(Event("retried", JOBS[0], text="its process was killed by SIGKILL"))
        table.update(Event("locked", JOBS[1], text="run x is being worked on"))
        table.update(Event("locked", JOBS[1], text="run x is being worked on"))
        table.update(Event("finished", JOBS[0], result=result()))
        table.update(Event("failed", JOBS[1], text="no data"))
        table.update(Event("finished", JOBS[2], result=result(diverged="the loss is nan")))
    assert out.getvalue().splitlines() == [
        "tmln, seed 3: done before",
        "warning: tmln, seed 0: too strong",
        "4 runs: 1 finished, 1 running, 2 to go, about 120 s left".replace("120 s", "2 min"),
        "tmln, seed 0: its process was killed by SIGKILL; it goes on from its checkpoint",
        "tmln, seed 1: waits, for run x is being worked on",
        "tmln, seed 0: ACC 94.9 in 40 s (4 runs: 2 finished, 2 to go, about 80 s left)",
        "tmln, seed 1: failed: no data (4 runs: 2 finished, 1 failed, 1 to go, about 40 s left)",
        "tmln, seed 2: diverged (the loss is nan) (4 runs: 2 finished, 1 diverged, 1 failed)",
        "4 runs: 2 finished, 1 diverged, 1 failed",
    ]


def test_briefly_only_what_went_wrong() -> None:
    out = io.StringIO()
    with ProgressDisplay(LABELS, out, Clock(), brief=True) as table:
        table.update(Event("started", JOBS[0]))
        table.update(Event("retried", JOBS[0], text="killed"))
        table.update(Event("finished", JOBS[0], result=result()))
    assert out.getvalue() == "tmln, seed 0: killed; it goes on from its checkpoint\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_label_keeps_its_beginning_and_its_seed() -> None:
    out = Terminal()
    label = "tmln step.damping=0.003719 step.eps=0.0001949 step.trajectory=1.078 replay.capacity=500, seed 12"
    with ProgressDisplay({**LABELS, run_id(JOBS[0].config): (JOBS[0], label)}, out, Clock()) as table:
        table.console.size = (90, 10)
        table.update(Event("started", JOBS[0]))
        table.update(Event("step", JOBS[0], info=info(3)))
        assert table.live is not None
        table.live.refresh()
    assert "tmln step.dampi…0, seed 12  running  task 2/5 epoch 3/10 loss 0.500" in out.getvalue()


def test_a_table_in_a_terminal() -> None:
    out = Terminal()
    jobs = [Job(RunConfig(benchmark="split-digits", method="tmln", seed=seed)) for seed in range(50)]
    with ProgressDisplay({run_id(job.config): (job, job.label) for job in jobs}, out, Clock()) as table:
        table.console.size = (80, 14)
        for job in jobs[:40]:
            table.update(Event("finished", job, result=result()))
        table.update(Event("failed", jobs[40], text="no [data] here"))
        table.update(Event("started", jobs[41]))
        table.update(Event("step", jobs[41], info=info(3)))
        assert table.live is not None
        table.live.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "")
    frame = shown[shown.rindex("run  ") :].splitlines()
    assert len(frame) <= 14
    assert re.match(r"tmln, seed 40 +failed +failed: no \[data\] here", frame[1])
    assert re.match(r"tmln, seed 41 +running +task 2/5 epoch 3/10 loss 0.500", frame[2])
    assert re.match(r"tmln, seed \d+ +finished +ACC 94.9 in 40 s", frame[3])
    assert "50 runs: 40 finished, 1 running, 1 failed, 8 to go" in shown


ONE = {run_id(JOBS[0].config): (JOBS[0], JOBS[0].label)}


def test_one_run_in_plain_lines() -> None:
    clock, out = Clock(), io.StringIO()
    with ProgressDisplay(ONE, out, clock) as display:
        display.update(Event("started", JOBS[0]))
        for step in range(1, 4):
            clock.now += 10.0
            display.update(Event("step", JOBS[0], info=info(step)))
        display.update(Event("finished", JOBS[0], result=result(seconds=2.0)))
    # a step every ten seconds, of 64 samples; 98 steps to go when 15 s were silent
    assert out.getvalue().splitlines() == [
        "tmln, seed 0: task 2/5 epoch 3/10 loss 0.500, step 2/100, 6 samples/s, 16 min left",
        "tmln, seed 0: ACC 94.9 in 2.0 s",
    ]


def test_one_run_has_a_bar_in_a_terminal() -> None:
    clock, out = Clock(), Terminal()
    with ProgressDisplay(ONE, out, clock) as display:
        display.console.size = (120, 10)
        display.update(Event("started", JOBS[0]))
        for step in (1, 50):
            clock.now += 10.0
            display.update(Event("step", JOBS[0], info=info(step)))
        assert display.live is not None
        display.live.refresh()
        display.update(Event("finished", JOBS[0], result=result(diverged="the loss is nan")))
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "")
    assert re.search(
        r"tmln, seed 0 +━+.* +task 2/5 epoch 3/10 loss 0.500, step 50/100, 314 samples/s, 10 s left", shown
    )
    assert "tmln, seed 0: diverged (the loss is nan)" in shown


def test_what_was_done_before_is_one_line() -> None:
    out = io.StringIO()
    with ProgressDisplay(LABELS, out, Clock()) as display:
        for job in JOBS[:3]:
            display.update(Event("skipped", job, result=result()))
        display.update(Event("started", JOBS[3]))
    assert out.getvalue().splitlines()[0] == "3 runs were done before"


def test_what_is_no_run_ends_with_a_word() -> None:
    out = io.StringIO()
    with ProgressDisplay(ONE, out, Clock()) as display:
        display.update(Event("finished", JOBS[0], text="recorded"))
    assert out.getvalue() == "tmln, seed 0: recorded\n"


@pytest.mark.parametrize("labels", [LABELS, ONE], ids=["many", "one"])
@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_what_a_run_says_is_shown_not_obeyed(stream: type[io.StringIO], labels: dict[str, tuple[Job, str]]) -> None:
    out = stream()
    with ProgressDisplay(labels, out) as table:
        table.update(Event("warning", JOBS[0], text="[red]no\x1b]0;owned\x07"))
        table.update(Event("failed", JOBS[0], text="[red]no\x1b]0;owned\x07"))
        table.render()
    assert r"[red]no\x1b]0;owned\x07" in out.getvalue()
    assert "\x1b]0" not in out.getvalue()
