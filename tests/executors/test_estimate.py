"""What runs will take: counted by hand, tried for a bounded time, and said once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from tests.experiments.killing import config
from tmln.executors import estimate as estimates
from tmln.executors.config import ExecutorConfig, work_of
from tmln.executors.estimate import FORWARD, SMALL, Estimator, RunEstimate, StepTiming, estimate_runs, time_steps
from tmln.executors.plan import plan
from tmln.experiments.build import stream_of
from tmln.experiments.config import RunConfig
from tmln.experiments.launch import RunOptions
from tmln.experiments.memory_estimate import MemoryEstimate
from tmln.learner import Learner
from tmln.learner.checkpoint import KEEP
from tmln.streams import Samples
from tmln.tuning.sweep import sweep

WEIGHTS = 4 * (64 * 128 + 128 + 128 * 10 + 10)
MEMORY = MemoryEstimate(held=7, weights=0, memory=0, sample=0, rows=1)
TESTS = 5 * 5 * 20  # after each of five tasks, ten of two classes of each task


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Trials and reading that take no time: a millisecond a sample, twice that for joint."""
    found: list[RunConfig] = []

    def trial(wanted: RunConfig, stream: Any) -> StepTiming:
        found.append(wanted)
        return StepTiming(
            0.002 if wanted.recipe().joint else 0.001, 2.0 if "er" in wanted.method else 1.0, 5000, MEMORY
        )

    monkeypatch.setattr(estimates, "time_steps", trial)
    monkeypatch.setattr(Estimator, "_read_stream", lambda self, config: (stream_of(config), 0.0))
    return found


def test_a_runs_steps_tests_and_sizes_are_counted(tried: list[RunConfig]) -> None:
    naive, er = config("naive"), config("er")
    estimator = Estimator([naive, er])
    # five tasks of 48 samples, two epochs in batches of 32
    assert estimator.estimate(naive) == RunEstimate(
        0.001 * (20 * 32 + FORWARD * TESTS), 1, 20, 5, WEIGHTS, SMALL + KEEP * WEIGHTS, 7
    )
    assert estimator.estimate(er).seconds == pytest.approx(0.001 * (20 * 64 + FORWARD * TESTS))  # as many replayed
    stored = er.resolved()["settings"]["replay.capacity"] * 64
    assert estimator.estimate(er).disk == SMALL + KEEP * (WEIGHTS + stored)
    few = er.with_setting("replay.batch", 3)
    assert Estimator([few]).estimate(few).seconds == pytest.approx(0.001 * (20 * 35 + FORWARD * TESTS))
    joint = config("joint")  # tasks 1..k for every k: 48, 96, ... samples
    assert Estimator([joint]).estimate(joint).steps == 2 * (2 + 3 + 5 + 6 + 8)


def test_each_kind_is_tried_once(tried: list[RunConfig]) -> None:
    found = sweep([config("tmln"), config("naive", epochs=9)], {"lr": [0.1, 1]}, seeds=3)
    jobs = plan(found.configs, "prefix")
    estimator = Estimator([job.config for job in jobs])
    assert estimator.kinds == len(tried) == 2  # joint's steps are those of naive
    assert {wanted.resolved()["step"] for wanted in tried} == {"tmln", "sgd"}


def test_trials_end_with_the_time_for_them_and_the_rest_is_by_the_work(
    tried: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    wide, narrow = (config("naive", model_options={"hidden": hidden}) for hidden in (512, 128))
    monkeypatch.setattr(estimates, "BUDGET", 0.0)  # one is tried in any case
    estimator = Estimator([narrow, wide])
    assert tried == [wide]  # which has more to do
    assert (len(estimator.timings), estimator.kinds) == (1, 2)
    ratio = work_of(narrow) / work_of(wide)
    assert estimator.estimate(narrow).seconds == pytest.approx(ratio * estimator.estimate(wide).seconds)


def test_a_trial_measures_and_leaves_the_process_as_it_was() -> None:
    wanted = config("er")
    torch.set_num_threads(2)
    try:
        trial = time_steps(wanted, stream_of(wanted))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert trial.seconds > 0
    assert trial.samples == 2.0
    assert trial.state > 2 * WEIGHTS  # momentum, too
    assert trial.memory.total > 10**7


@pytest.mark.parametrize("method", ["slda", "ranpac+"])
def test_a_run_that_trains_nothing_or_its_first_task_alone_is_tried(method: str) -> None:
    wanted = config(method)
    assert time_steps(wanted, stream_of(wanted)).seconds > 0


def test_where_nothing_is_trained_every_sample_passes_once(tried: list[RunConfig]) -> None:
    slda = config("slda")
    found = Estimator([slda]).estimate(slda)
    assert found.steps == 0
    assert found.seconds == pytest.approx(0.001 * (5 * 48 + 5 * 20))


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """A learner that takes so many seconds a step, by its samples, after a second for each task; what it was taught."""

    def clock(seconds: Mapping[int, float], begin: float = 1.0) -> list[int]:
        now, taught = [0.0], list[int]()

        def learn(self: Learner, data: Samples, *, atomic: bool, on_step: Callable[..., None]) -> None:
            taught.append(len(data))
            now[0] += begin
            for step, rows in enumerate(torch.arange(len(data)).split(self.batch_size)):
                self.last_batch = len(rows)
                now[0] += seconds[len(rows)]
                on_step(0, step, 0.0)

        monkeypatch.setattr(Learner, "learn", learn)
        monkeypatch.setattr(time, "perf_counter", lambda: now[0])
        return taught

    return clock


def test_whole_batches_count_without_what_a_task_begins_with(clocked: Callable[..., list[int]]) -> None:
    taught = clocked({2: 0.002, 32: 0.032}, begin=0.002)
    wanted = config("joint", benchmark_options={"per_class": 64})
    trial = time_steps(wanted, stream_of(wanted))
    assert trial.seconds == pytest.approx(0.001)
    assert trial.samples == 1.0
    assert taught == [2, 2, 96, 96, 96]  # three batches


def test_the_rest_of_a_task_is_no_measure_of_its_batches(clocked: Callable[..., list[int]]) -> None:
    taught = clocked({2: 0.002, 32: 0.032, 16: 0.16}, begin=0.008)
    wanted = config("joint")  # two classes of 24
    assert time_steps(wanted, stream_of(wanted)).seconds == pytest.approx(0.04 / 32)
    assert taught == [2, 2, 48, 48, 48]


def test_the_first_try_is_to_warm_up_and_long_steps_are_of_few_samples(clocked: Callable[..., list[int]]) -> None:
    taught = clocked({2: 0.118, 5: 0.26}, begin=0.0)
    wanted = config("naive")
    assert time_steps(wanted, stream_of(wanted)).seconds == pytest.approx(0.052)
    assert taught == [2, 2, 5, 5, 5]  # as many as 0.3 s have room for


def test_a_trial_of_a_slow_model_ends_with_its_time(clocked: Callable[..., list[int]]) -> None:
    taught = clocked({2: 3.0}, begin=0.0)
    wanted = config("naive")
    assert time_steps(wanted, stream_of(wanted)).seconds == pytest.approx(1.5)
    assert taught == [2, 2, 2]


def test_reading_counts_for_every_run(tried: list[RunConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = config("naive")
    plain = Estimator([wanted]).estimate(wanted).seconds
    monkeypatch.setattr(Estimator, "_read_stream", lambda self, config: (stream_of(config), 7.0))
    assert Estimator([wanted]).estimate(wanted).seconds == pytest.approx(7.0 + plain)


def test_further_threads_add_less(tried: list[RunConfig]) -> None:
    wanted = config("naive")
    one, two = (Estimator([wanted], RunOptions(threads=threads)).estimate(wanted) for threads in (1, 2))
    assert two.threads == 2
    assert one.seconds / two.seconds == pytest.approx(1.8)


@pytest.mark.parametrize(
    ("executor", "workers", "wall"),
    [
        (ExecutorConfig("serial"), 1, 70.0),
        (ExecutorConfig(workers=2), 2, 35.0),
        (
            ExecutorConfig(),
            4,
            22.5,
        ),  # 30 s on one core, 2 x 20 s on two: 110 core seconds on four, no less than the longest
    ],
    ids=["serial", "two", "as many as fit"],
)
def test_the_time_of_all(
    executor: ExecutorConfig, workers: int, wall: float, tried: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimates, "cores", lambda: 4)
    needs = {0: (30.0, 1), 1: (20.0, 2), 2: (20.0, 2)}
    monkeypatch.setattr(Estimator, "estimate", lambda self, wanted: RunEstimate(*needs[wanted.seed], 1, 1, 0, 10, 5))
    found = estimate_runs([config(seed=seed) for seed in range(3)], RunOptions(), executor)
    assert (found.seconds, found.disk, found.memory) == (70.0, 30, 5)
    assert found.wall == pytest.approx(max(wall, 30.0) if executor.workers is None and workers > 1 else wall)
    assert found.workers == (min(workers, 3) if workers != 4 else 3)


def test_it_says_how_it_knows_and_how_busy_the_machine_was(
    tried: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (3.25, 1.0, 1.0))
    lines = estimate_runs([config("naive")], RunOptions(), ExecutorConfig()).lines()
    assert "on this machine in its present state, 1 at a time (a few steps of each kind timed; it is busy" in lines[0]
    assert "load 3.2 on" in lines[0]
    assert sum(line.count("about") for line in lines) == 1  # one duration, and no other that contradicts it
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 1.0, 1.0))
    assert "busy" not in estimate_runs([config("naive")], RunOptions(), ExecutorConfig()).lines()[0]
