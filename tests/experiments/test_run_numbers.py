"""The numbers that a result states beside its matrix: rates, training accuracy, orders, boundaries, seconds."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.experiments.test_run import config, finish, result_of
from tmln.executors.config import ExecutorConfig
from tmln.executors.execute import Event, execute
from tmln.executors.plan import plan
from tmln.experiments.build import build, stream_of
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.launch import RunOptions
from tmln.experiments.lock import LockLost
from tmln.experiments.reference_runs import reference_config
from tmln.experiments.result import Result
from tmln.experiments.run import Execution, fingerprint
from tmln.experiments.store import Run, Store
from tmln.learner import Learner
from tmln.learner.evaluation import evaluate
from tmln.seeds import seed_of
from tmln.signals import Interrupted, asked_to_stop
from tmln.streams import Stream
from tmln.streams.incremental import resolve_class_order


def stopped_at(step: int) -> dict[str, Any]:
    seen: list[int] = []
    return {"on_step": lambda info: seen.append(info.step), "stop": lambda: seen[-1] == step}


# -- the effective rate ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "settings", "rate"),
    [
        ("naive", {}, 0.01),
        ("tmln", {}, 0.01 / 0.1),
        ("tmln", {"step.damping": 0.5}, 0.02),
        ("tmln", {"step.match_base_lr": True}, 0.01),
        ("ocar", {"step.damping": 0.2}, 0.05),
    ],
    ids=["naive", "tmln", "damped", "matched", "ocar"],
)
def test_the_rate_is_eta_over_lambda(tmp_path: Path, method: str, settings: dict[str, Any], rate: float) -> None:
    run = Store(tmp_path).open(config(method, settings=settings))
    assert Execution(run).rate == pytest.approx(rate)


def test_the_rate_is_in_the_result_also_of_a_run_that_goes_on(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        finish(tmp_path, config(), **stopped_at(7))
    assert finish(tmp_path, config()).effective_rate == pytest.approx(0.1)


def test_a_result_names_the_run_that_it_was_held_against(tmp_path: Path) -> None:
    wanted = config("naive", lr=0.05)
    reference = reference_config(wanted, "final")
    assert reference is not None
    store, jobs = Store(tmp_path), plan([wanted], "final")
    assert execute(store, jobs, RunOptions("final"), ExecutorConfig("serial")) == []
    results = [result_of(store, job.config) for job in jobs]
    assert [(result.oracle, result.reference) for result in results] == [
        ("none", ""),
        ("final", run_id(reference)),
    ]


# -- accuracy on training data -----------------------------------------------------------------------------------------


def test_training_accuracy_is_of_the_stored_data_after_the_last_task(tmp_path: Path) -> None:
    wanted = config("naive", train_accuracy=True)
    run = Store(tmp_path).open(wanted)
    with run.lock:
        work = Execution(run)
        result = work()
    by_task = [evaluate(work.learner.model, task.train, work.stream.prepare)["accuracy"] for task in work.stream]
    assert result.metrics["acc_train"] == pytest.approx(sum(by_task) / 5)
    assert by_task[-1] > by_task[0]  # naive training forgets its training data, too
    plain = finish(tmp_path, config("naive"))
    assert "acc_train" not in plain.metrics
    assert plain.weights_sha256 == result.weights_sha256  # it is looked at only


def test_training_accuracy_with_closed_classes_and_of_a_run_that_diverged(tmp_path: Path) -> None:
    run = Store(tmp_path).open(config("naive", train_accuracy=True, logit_mask="seen"))
    work = Execution(run)
    work.learner.position.classes = work.stream[0].classes  # only the first task's classes are open
    with torch.no_grad():
        for p in work.learner.model.parameters():
            p.zero_()
    assert work._train_accuracy() == pytest.approx(0.5 / 5)  # one class of the first task, and nothing of the others
    assert "acc_train" not in finish(tmp_path, config("naive", train_accuracy=True, lr=1e30)).metrics


def test_training_accuracy_is_part_of_a_run_only_if_asked_for() -> None:
    assert "train_accuracy" not in config().resolved()
    assert run_id(config(train_accuracy=False)) == run_id(config())
    asked = config(train_accuracy=True)
    assert run_id(asked) != run_id(config())
    assert run_id(RunConfig.of(asked.resolved())) == run_id(asked)
    assert run_id(config().with_setting("train_accuracy", "true")) == run_id(asked)


# -- orders by the run's seed ------------------------------------------------------------------------------------------


def test_each_seed_has_its_own_class_order_and_shares_it_with_its_reference(tmp_path: Path) -> None:
    by_seed = {"benchmark_options": {"per_class": 24, "per_class_test": 10, "class_order": "run-seed"}, "epochs": 1}
    orders = {}
    for seed in (0, 1):
        wanted = config("naive", seed=seed, **by_seed)
        stream, _ = build(wanted)
        expected = resolve_class_order(f"seed:{seed_of(seed, 'class_order') % 2**32}", 10, 0)
        assert stream.metadata["class_order"] == list(expected)
        assert stream[0].classes == tuple(sorted(expected[:2]))
        reference = reference_config(wanted, "prefix")
        assert reference is not None
        assert build(reference)[0].metadata == stream.metadata
        orders[seed] = expected
    assert orders[0] != orders[1]
    result = finish(tmp_path, config("naive", seed=1, **by_seed))
    assert result.stream["class_order"] == list(orders[1])
    assert result.config["benchmark_options"]["class_order"] == "run-seed"  # one row for all seeds


# -- what a boundary found out -----------------------------------------------------------------------------------------


class Noted:
    """Stands for a logger."""

    def __init__(self) -> None:
        self.said: list[tuple[dict[str, float], int]] = []

    def scalars(self, values: dict[str, float], step: int) -> None:
        self.said.append((values, step))

    def close(self) -> None:
        pass


def test_diagnostics_of_each_boundary_are_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = property(lambda self: {"step/active": self.tasks / 4, "step/head_share": 0.5})
    monkeypatch.setattr(Learner, "diagnostics", found, raising=False)
    noted = Noted()
    monkeypatch.setattr("tmln.experiments.run.make_logger", lambda name, run, step: noted)
    result = finish(tmp_path, config("naive"))
    lines = [line for line in Store(tmp_path).open(config("naive")).read_log() if "boundary" in line]
    steps = [result.steps // 5 * (k + 1) for k in range(5)]
    assert lines == [
        {"step": step, "task": k, "boundary": {"step/active": (k + 1) / 4, "step/head_share": 0.5}}
        for k, step in enumerate(steps)
    ]
    told = [(values, step) for values, step in noted.said if "boundary/step/active" in values]
    assert told == [
        ({"boundary/step/active": (k + 1) / 4, "boundary/step/head_share": 0.5}, step) for k, step in enumerate(steps)
    ]


def test_without_diagnostics_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Learner, "diagnostics", {}, raising=False)
    finish(tmp_path, config("naive"))
    assert not any("boundary" in line for line in Store(tmp_path).open(config("naive")).read_log())


# -- what is written only by whoever holds the run ---------------------------------------------------------------------


def test_a_process_that_lost_its_run_saves_no_checkpoint(tmp_path: Path) -> None:
    run = Store(tmp_path).open(config("naive"))

    def take_over(info: Any) -> None:
        if info.step == 3:
            (run.lock.folder / "owner").write_text("process 1 on another machine\n")

    with run.lock, pytest.raises(LockLost, match="leave the run to that one"):
        Execution(run, RunOptions(checkpoint_steps=4), on_step=take_over)()
    assert not list(run.checkpoints.glob("*"))


def test_seconds_count_those_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("tmln.experiments.run.time", type("Clock", (), {"monotonic": staticmethod(lambda: clock[0])}))

    def tick(info: Any) -> None:
        clock[0] += 1.0

    def stop() -> bool:
        return clock[0] == 6.0

    with pytest.raises(Interrupted):
        finish(tmp_path, config("naive"), on_step=tick, stop=stop)
    clock[0] = 1000.0  # a day later
    result = finish(tmp_path, config("naive"), on_step=tick)
    assert result.seconds == result.steps  # a second a step, the pause not counted


def test_a_run_that_another_finished_meanwhile_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the first look and the lock: another process finishes it and lets go."""
    theirs = finish(tmp_path / "theirs", config("naive"))
    run = Store(tmp_path / "mine").open(config("naive"))

    def begin(event: Event) -> None:
        if event.kind == "finished":
            ended.append(event.result)
        if event.kind != "started":
            return
        with Run(run.path, run.config).lock as lock:
            other = Run(run.path, run.config)
            other.lock = lock
            other.finish(json.loads((tmp_path / "theirs" / theirs.name / "result.json").read_text()))

    def never(*words: Any) -> None:
        raise AssertionError("it is finished")

    monkeypatch.setattr("tmln.executors.run_job.Execution", never)
    ended: list[Result | None] = []
    jobs = plan([config("naive")], "none")
    assert execute(Store(tmp_path / "mine"), jobs, on_event=begin) == []
    assert ended[0] is not None
    assert ended[0].weights_sha256 == theirs.weights_sha256


# -- what is logged, tested and saved on the way -----------------------------------------------------------------------


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    found = Noted()
    monkeypatch.setattr("tmln.experiments.run.make_logger", lambda name, run, step: found)
    return found


def test_every_fiftieth_step_and_every_tasks_end_are_logged(tmp_path: Path, noted: Noted) -> None:
    wanted = config("naive", epochs=12)
    result = finish(tmp_path, wanted)
    log = Store(tmp_path).open(wanted).read_log()
    assert [line["step"] for line in log if "loss" in line] == list(range(50, result.steps + 1, 50))
    assert [line["accuracy"] for line in log if "accuracy" in line] == result.accuracy
    assert [line["task"] for line in log if "accuracy" in line] == [0, 1, 2, 3, 4]
    seen = [values["accuracy/seen"] for values, _ in noted.said if "accuracy/seen" in values]
    assert seen == pytest.approx([sum(row[: k + 1]) / (k + 1) for k, row in enumerate(result.accuracy)])


class Ticking:
    """A clock in the place of ``time``: so many seconds a look."""

    def __init__(self, tick: float) -> None:
        self.now, self.tick = 0.0, tick

    def monotonic(self) -> float:
        self.now += self.tick
        return self.now


@pytest.mark.parametrize(
    ("tick", "seconds", "saved"),
    [(0.0, 300.0, 0), (4.0, 1e9, 5), (1.0, 2.5, None)],
    ids=["at once", "slow tasks", "by the clock"],
)
def test_checkpoints_come_by_the_clock_and_at_the_end_of_slow_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tick: float, seconds: float, saved: int | None
) -> None:
    written: list[int] = []
    monkeypatch.setattr("tmln.experiments.run.time", Ticking(tick))
    monkeypatch.setattr("tmln.experiments.run.write_checkpoint", lambda root, state, step: written.append(step))
    steps = finish(tmp_path, config("naive"), terms=RunOptions(checkpoint_seconds=seconds)).steps
    if saved is None:  # a look a step: the third after the last checkpoint is beyond 2.5 s
        assert 5 < len(written) < steps
    else:
        assert written == [steps // 5 * (k + 1) for k in range(5)][:saved]


def test_the_peak_is_that_of_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tmln.experiments.run.peak_bytes", lambda: 700)
    with pytest.raises(Interrupted):
        finish(tmp_path, config("naive"), **stopped_at(7))
    monkeypatch.setattr("tmln.experiments.run.peak_bytes", lambda: 300)
    assert finish(tmp_path, config("naive")).peak_memory_bytes == 700


def test_only_classes_met_so_far_compete_if_asked(tmp_path: Path) -> None:
    """After the first task of two classes, nothing of the others can be right; over all classes some are by chance."""
    rows = {mask: finish(tmp_path, config("naive", logit_mask=mask, epochs=1)).accuracy for mask in ("seen", "none")}
    assert rows["seen"][0][1:] == [0.0] * 4
    assert rows["seen"][0][0] > rows["none"][0][0]


def test_masked_accuracy_has_a_metric_of_its_own(tmp_path: Path) -> None:
    result = finish(tmp_path, config("naive"))
    assert result.metrics["acc_task_masked"] == pytest.approx(sum(result.masked_accuracy[-1]) / 5)
    assert result.metrics["acc_task_masked"] > result.metrics["acc"]


def test_extra_test_sets_count_as_they_are_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_extra(wanted: RunConfig) -> Stream:
        stream = stream_of(wanted)
        return replace(stream, extra_tests={"first": stream[0].test})

    monkeypatch.setattr("tmln.experiments.run.stream_of", with_extra)
    result = finish(tmp_path, config("naive"))
    assert result.metrics["acc_first"] == result.accuracy[-1][0] < result.accuracy[0][0]


def test_what_was_logged_before_the_first_checkpoint_is_dropped(tmp_path: Path) -> None:
    run = Store(tmp_path).open(config("naive"))
    run.append_log({"step": 0, "loss": 9.0})
    with run.lock:
        Execution(run)()
    assert all("loss" not in line for line in run.read_log())


def test_a_fingerprint_is_of_names_and_values() -> None:
    one, other = (torch.nn.ParameterDict({name: torch.nn.Parameter(torch.ones(3))}) for name in "ab")
    assert fingerprint(one) == fingerprint(torch.nn.ParameterDict({"a": torch.nn.Parameter(torch.ones(3))}))
    assert fingerprint(one) != fingerprint(other)
    with torch.no_grad():
        other["b"][2] = 1.0 + 2**-23  # the last bit
    before = fingerprint(other)
    with torch.no_grad():
        other["b"][2] = 1.0
    assert fingerprint(other) != before


# -- signals -----------------------------------------------------------------------------------------------------------


def test_the_first_signal_asks_the_second_is_final_and_the_old_handlers_come_back() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with asked_to_stop() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGTERM)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert {number: signal.getsignal(number) for number in before} == before
