"""The numbers that a result states beside its matrix: rates, training accuracy, orders, boundaries, seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.lab.test_run import config, finish
from tmln.lab.config import RunConfig, run_id
from tmln.lab.lock import LockLost
from tmln.lab.oracle import reference_config
from tmln.lab.run import Execution, Interrupted, Watch, build
from tmln.lab.session import Job, plan, run_jobs
from tmln.lab.store import Run, Store
from tmln.learner import Learner
from tmln.learner.evaluate import evaluate
from tmln.seeds import seed_of
from tmln.streams.split import class_order


def stopped_at(step: int) -> Watch:
    seen: list[int] = []
    return Watch(on_step=lambda moment: seen.append(moment.step), stop=lambda: seen[-1] == step)


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
        finish(tmp_path, config(), watch=stopped_at(7))
    assert finish(tmp_path, config())["effective_rate"] == pytest.approx(0.1)


def test_a_result_names_the_run_that_it_was_held_against(tmp_path: Path) -> None:
    wanted = config("naive", lr=0.05)
    reference = reference_config(wanted, "final")
    assert reference is not None
    results: list[dict[str, Any]] = []
    run_jobs(Store(tmp_path), plan([wanted], "final"), "final", on_end=lambda job, result: results.append(result))
    assert [(result["oracle"], result["reference"]) for result in results] == [
        ("none", None),
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
    assert result["metrics"]["acc_train"] == pytest.approx(sum(by_task) / 5)
    assert by_task[-1] > by_task[0]  # naive training forgets its training data, too
    plain = finish(tmp_path, config("naive"))
    assert "acc_train" not in plain["metrics"]
    assert plain["weights_sha256"] == result["weights_sha256"]  # it is looked at only


def test_training_accuracy_with_closed_classes_and_of_a_run_that_diverged(tmp_path: Path) -> None:
    run = Store(tmp_path).open(config("naive", train_accuracy=True, logit_mask="seen"))
    work = Execution(run)
    work.learner.classes = work.stream[0].classes  # only the first task's classes are open
    with torch.no_grad():
        for p in work.learner.model.parameters():
            p.zero_()
    assert work._train_accuracy() == pytest.approx(0.5 / 5)  # one class of the first task, and nothing of the others
    assert "acc_train" not in finish(tmp_path, config("naive", train_accuracy=True, lr=1e30))["metrics"]


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
        expected = class_order(f"seed:{seed_of(seed, 'class_order') % 2**32}", 10, 0)
        assert stream.metadata["class_order"] == list(expected)
        assert stream[0].classes == tuple(sorted(expected[:2]))
        reference = reference_config(wanted, "prefix")
        assert reference is not None
        assert build(reference)[0].metadata == stream.metadata
        orders[seed] = expected
    assert orders[0] != orders[1]
    result = finish(tmp_path, config("naive", seed=1, **by_seed))
    assert result["stream"]["class_order"] == list(orders[1])
    assert result["config"]["benchmark_options"]["class_order"] == "run-seed"  # one row for all seeds


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
    monkeypatch.setattr("tmln.lab.run.make_logger", lambda name, run, step: noted)
    result = finish(tmp_path, config("naive"))
    lines = [line for line in Store(tmp_path).open(config("naive")).read_log() if "boundary" in line]
    steps = [result["steps"] // 5 * (k + 1) for k in range(5)]
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

    def take_over(moment: Any) -> None:
        if moment.step == 3:  # the next number is another's
            (run.lock.folder / "00000099").write_text("")

    with run.lock, pytest.raises(LockLost, match="leave the run to that one"):
        Execution(run, Watch(checkpoint_steps=4, on_step=take_over))()
    assert not list(run.checkpoints.glob("*"))


def test_seconds_count_those_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("tmln.lab.run.time", type("Clock", (), {"monotonic": staticmethod(lambda: clock[0])}))

    def tick(moment: Any) -> None:
        clock[0] += 1.0

    def stop() -> bool:
        return clock[0] == 6.0

    with pytest.raises(Interrupted):
        finish(tmp_path, config("naive"), watch=Watch(on_step=tick, stop=stop))
    clock[0] = 1000.0  # a day later
    result = finish(tmp_path, config("naive"), watch=Watch(on_step=tick))
    assert result["seconds"] == result["steps"]  # a second a step, the pause not counted


def test_a_run_that_another_finished_meanwhile_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the first look and the lock: another process finishes it and lets go."""
    theirs = finish(tmp_path / "theirs", config("naive"))
    run = Store(tmp_path / "mine").open(config("naive"))

    def begin(job: Job, finished: bool) -> None:
        assert not finished
        with Run(run.path, run.config).lock as lock:
            other = Run(run.path, run.config)
            other.lock = lock
            other.finish(theirs)

    def never(*words: Any) -> None:
        raise AssertionError("it is finished")

    monkeypatch.setattr("tmln.lab.session.Execution", never)
    ended: list[dict[str, Any]] = []
    jobs = plan([config("naive")], "none")
    run_jobs(Store(tmp_path / "mine"), jobs, "none", on_begin=begin, on_end=lambda job, result: ended.append(result))
    assert ended[0]["weights_sha256"] == theirs["weights_sha256"]
