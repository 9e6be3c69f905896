"""Many runs at once: their order, their losses and failures, and that a killed worker changes no bit of a result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.experiments.killing import PATIENCE, Notes, config, gone, mortal, uninterrupted, worker_of
from tmln.executors import config as configs
from tmln.executors import execute as executing
from tmln.executors.config import ExecutorConfig, cores, threads_of, work_of
from tmln.executors.execute import Event, Failure, Scheduler, execute
from tmln.executors.interfaces import Outcome, RunRequest
from tmln.executors.plan import Job, plan
from tmln.executors.processes import ProcessExecutor
from tmln.executors.run_job import ERROR, SerialExecutor, run_job
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.launch import RunOptions
from tmln.experiments.result import Result
from tmln.experiments.run import StepInfo
from tmln.experiments.store import Store
from tmln.signals import Interrupted

if TYPE_CHECKING:
    from tmln.executors.interfaces import Message, OnMessage

RESULT = Result("split-digits", "naive", 0, {})
DONE = Outcome("finished", RESULT)


class Script:
    """A pool that answers as it is told: for each name, the outcomes of its tries."""

    shared = True

    def __init__(self, capacity: int = 1, cores: int = 8, **answers: list[Outcome]) -> None:
        self.capacity, self.cores, self.answers = capacity, cores, answers
        self.submitted: list[str] = []
        self.open: list[str] = []
        self.stopped = False

    def submit(self, name: str, request: RunRequest) -> None:
        self.submitted.append(name)
        self.open.append(name)
        assert len(self.open) <= self.capacity

    def wait(self, seconds: float, on_message: OnMessage) -> None:
        if not self.open:
            return
        name = self.open.pop(0)
        answers = self.answers.get(name, [DONE])
        on_message(name, "started")
        on_message(name, answers.pop(0) if len(answers) > 1 else answers[0])

    def stop(self) -> None:
        self.stopped = True

    def close(self) -> None:
        pass

    def count_neighbours(self, runs: int) -> int:
        return 0


def schedule(
    names: str,
    on_event: Callable[[Event], None] = lambda event: None,
    retries: int = 2,
    threads: dict[str, int] | None = None,
    **needs: str,
) -> Scheduler:
    many = threads or {}
    tasks = {
        name: RunRequest(Job(config(seed=k)), "runs", RunOptions(), many.get(name, 1)) for k, name in enumerate(names)
    }
    return Scheduler(tasks, needs, on_event, retries)


def never() -> bool:
    return False


def test_what_is_needed_comes_first_and_nobody_else_waits_for_it() -> None:
    pool = Script(capacity=2)
    assert schedule("abcr", a="r", b="r").run(pool, never) == []
    assert pool.submitted == ["c", "r", "a", "b"]


def test_a_failed_reference_does_not_keep_others_waiting() -> None:
    pool = Script(r=[Outcome("failed", error="no data")])
    failures = schedule("ra", a="r").run(pool, never)
    assert pool.submitted == ["r", "a"]
    assert [failure.error for failure in failures] == ["no data"]


def test_a_lost_run_is_tried_again_at_once_and_not_for_ever() -> None:
    lost = Outcome("lost", error="its worker was killed")
    said: list[str] = []
    pool = Script(a=[lost, DONE], b=[lost])
    failures = schedule("abc", lambda event: said.append(event.kind)).run(pool, never)
    assert pool.submitted == ["a", "a", "b", "b", "b", "c"]
    assert [failure.error for failure in failures] == ["its worker was killed, 3 times"]
    assert said.count("retried") == 3
    assert schedule("b", retries=0).run(Script(b=[lost]), never)[0].error == "its worker was killed, 1 times"


def test_a_run_that_others_work_on_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executing, "LOCKED_PAUSE", 0.02)
    said: list[str] = []
    pool = Script(a=[Outcome("locked", error="elsewhere"), DONE])
    assert schedule("ab", lambda event: said.append(event.kind)).run(pool, never) == []
    assert pool.submitted == ["a", "b", "a"]
    assert said == ["started", "locked", "started", "finished", "started", "finished"]


def test_a_warning_is_told_once_a_method() -> None:
    said: list[str] = []
    strong = [Outcome("finished", RESULT, warnings=("too strong",))]
    pool = Script(a=strong, b=strong, c=strong)
    schedule("abc", lambda event: said.append(event.text) if event.kind == "warning" else None).run(pool, never)
    assert said == ["too strong"]


def test_asked_to_stop_it_waits_for_what_is_being_saved() -> None:
    pool = Script(capacity=2, a=[DONE], b=[Outcome("stopped")])
    asked = iter([False, True])
    with pytest.raises(Interrupted, match="stopped with 2 of 3 runs to go"):
        schedule("abc").run(pool, lambda: next(asked))
    assert pool.stopped
    assert not pool.open


@pytest.mark.parametrize(
    ("cores", "threads", "together"),
    [
        (4, {"a": 2, "b": 2, "c": 2}, ["ab", "c"]),
        (4, {"a": 3, "b": 2, "c": 1}, ["a", "bc"]),
        (2, {"a": 8, "b": 1, "c": 1}, ["a", "bc"]),  # more than there are: alone
        (4, {"a": 1, "b": 1, "c": 4}, ["ab", "c"]),
    ],
)
def test_runs_at_one_time_have_no_more_threads_than_there_are_cores(
    cores: int, threads: dict[str, int], together: list[str]
) -> None:
    class Whole(Script):
        """Ends all that is open at once."""

        def wait(self, seconds: float, on_message: OnMessage) -> None:
            seen.append("".join(self.open))
            while self.open:
                super().wait(seconds, on_message)

    seen: list[str] = []
    assert schedule("abc", threads=threads).run(Whole(capacity=8, cores=cores), never) == []
    assert seen == together


def test_what_a_process_does_itself_is_stopped_without_being_tried_again() -> None:
    said: list[str] = []
    asked: list[bool] = []

    class Stopped(Script):
        def wait(self, seconds: float, on_message: OnMessage) -> None:
            asked.append(True)
            super().wait(seconds, on_message)

    pool = Stopped(a=[Outcome("stopped", error="saved")])
    with pytest.raises(Interrupted, match="stopped with 2 of 2 runs to go"):
        schedule("ab", lambda event: said.append(event.kind)).run(pool, lambda: bool(asked))
    assert said == ["started"]


def task_of(root: Path, wanted: RunConfig) -> RunRequest:
    return RunRequest(Job(wanted), str(root), RunOptions())


def test_a_worker_never_raises_and_keeps_what_went_wrong(tmp_path: Path) -> None:
    bad = task_of(tmp_path, RunConfig(benchmark=f"folder:{tmp_path / 'nowhere'}", method="er"))
    outcome = run_job(bad, lambda info: None)
    assert (outcome.state, outcome.error) == ("failed", f"{tmp_path / 'nowhere'}: no such folder")
    (trace,) = tmp_path.glob(f"*/{ERROR}")
    assert "Traceback" in trace.read_text(encoding="utf-8")

    infos: list[StepInfo] = []
    good = task_of(tmp_path, config(epochs=1))
    run = Store(tmp_path).open(good.job.config)
    (run.path / ERROR).touch()  # of an earlier try
    outcome = run_job(good, infos.append)
    assert outcome.state == "finished"
    assert outcome.result == run.result
    assert [info.step for info in infos] == list(range(1, 11))  # 5 tasks of 48 samples, batches of 32
    assert not (run.path / ERROR).exists()
    with run.lock:
        (run.path / "result.json").unlink()
        assert run_job(good, lambda info: None).state == "locked"


def test_an_error_of_ours_is_named_by_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*words: Any, **more: Any) -> None:
        raise KeyError("weights")

    monkeypatch.setattr("tmln.executors.run_job.Execution", broken)
    assert run_job(task_of(tmp_path, config()), lambda info: None).error == "KeyError: 'weights'"


def test_done_is_done_and_a_newer_result_is_a_failure_not_a_crash(tmp_path: Path) -> None:
    store, events = Store(tmp_path), list[Event]()
    done, newer = config(), config(seed=1)
    for wanted in (done, newer):
        run = store.open(wanted)
        with run.lock:
            run.finish({"accuracy": [[1.0]], "metrics": {"acc": 1.0}})
    path = run.path / "result.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"format": 2', '"format": 99'), encoding="utf-8")
    failures = execute(store, plan([done, newer], "none"), on_event=events.append)
    assert [failure.job.config for failure in failures] == [newer]
    assert "upgrade tmln" in failures[0].error
    assert [event.kind for event in events] == ["skipped", "failed"]


SMALL: dict[str, Any] = {"benchmark": "split-cifar10", "model": "resnet18", "model_options": {"width": 8}}


@pytest.mark.parametrize(
    ("changes", "work", "threads"),
    [
        ({"benchmark": "split-digits"}, 3 * 32 * 32 * 128 + 128 * 10, 1),
        (SMALL, None, 1),
        ({**SMALL, "model_options": {"width": 20}}, None, 2),
        ({**SMALL, "model_options": {}}, None, 8),
        ({"benchmark": "core50"}, None, 8),
        ({**SMALL, "model": "nowhere_at_all:Net", "model_options": {}}, 0, 1),  # whose code nobody has allowed
    ],
    ids=["perceptron", "width 8", "width 20", "width 64", "large images", "unknown"],
)
def test_threads_are_by_the_network_alone(changes: dict[str, Any], work: float | None, threads: int) -> None:
    wanted = RunConfig(**changes)
    assert work is None or work_of(wanted) == work
    assert threads_of(wanted, most=64) == threads
    assert threads_of(wanted, most=2) == min(threads, 2)


def test_a_narrow_resnets_multiply_adds_grow_with_the_square_of_its_width() -> None:
    one, two = (work_of(RunConfig(**{**SMALL, "model_options": {"width": width}})) for width in (8, 16))
    assert one == pytest.approx(8.87e6, rel=0.01)
    assert two == pytest.approx(4 * one, rel=0.05)


def test_who_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "cores", lambda: 8)
    with ExecutorConfig().open_pool(jobs=100) as pool:
        assert isinstance(pool, ProcessExecutor)
        assert (pool.capacity, pool.cores, pool.shared) == (8, 8, True)
    with ExecutorConfig(workers=16).open_pool(jobs=100) as pool:  # as many as were asked for, whatever there is
        assert (pool.capacity, pool.shared) == (16, False)
    for alone in (ExecutorConfig().open_pool(jobs=1), ExecutorConfig("serial").open_pool(jobs=100)):
        with alone as pool:
            assert isinstance(pool, SerialExecutor)


def test_runs_do_not_share_a_gpu_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tmln.experiments.machine.run_device", lambda: torch.device("meta"))
    with ExecutorConfig().open_pool(jobs=100) as pool:
        assert pool.capacity == 1
    with ExecutorConfig(workers=3).open_pool(jobs=100) as pool:
        assert pool.capacity == 3


def test_bits_do_not_depend_on_who_does_a_run_or_how_many_there_are(tmp_path: Path) -> None:
    jobs = plan([config("tmln"), config("ocar")], "none")
    torch.set_num_threads(2)  # of this process, which a run leaves as they were
    try:
        for name, executor in {
            "serial": ExecutorConfig("serial"),
            "one": ExecutorConfig(workers=1),
            "two": ExecutorConfig(workers=2),
        }.items():
            assert execute(Store(tmp_path / name), jobs, executor=executor) == []
        assert execute(Store(tmp_path / "alone"), jobs[:1]) == []
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    found = [
        [result.weights_sha256 for job in jobs if (result := Store(tmp_path / name).open(job.config).result)]
        for name in ("serial", "one", "two", "alone")
    ]
    assert found[0] == found[1] == found[2]
    assert found[3] == found[0][:1]


def test_starting_workers_loads_no_torch() -> None:
    code = (
        "import sys, tmln.executors.processes, tmln.executors.config; "
        "print('torch' in sys.modules, 'pydantic' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False False"


def test_a_failure_in_this_process_says_where_it_was(tmp_path: Path) -> None:
    broken = RunConfig(benchmark=f"folder:{tmp_path / 'nowhere'}", method="er")
    notes = Notes()
    (failure,) = execute(Store(tmp_path), [Job(broken)], executor=ExecutorConfig("serial"), on_event=notes)
    assert isinstance(failure.cause, (OSError, ValueError))
    assert [event.kind for event in notes.events] == ["started", "failed"]


def test_unknown_executors_are_answered(tmp_path: Path) -> None:
    assert cores() >= 1
    with pytest.raises(ValueError, match="unknown executor 'rai'; did you mean 'ray'"):
        execute(Store(tmp_path), [Job(config())], executor=ExecutorConfig("rai"))


def test_a_killed_worker_a_failed_run_and_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process is killed in the middle of a run: it goes on from its checkpoint to the same bits; one run fails."""
    monkeypatch.setenv("TMLN_ALLOW_CODE", "1")  # the network that kills its process is of these tests
    store, killed = Store(tmp_path / "runs"), mortal(tmp_path / "after", at=15)
    broken = RunConfig(benchmark=f"folder:{tmp_path / 'nowhere'}", method="er")
    jobs = [Job(killed), *plan([config("tmln"), config("er")], "final"), Job(broken)]
    notes = Notes()
    options = RunOptions("final", checkpoint_steps=10, checkpoint_seconds=1e9)
    failures = execute(store, jobs, options, ExecutorConfig(workers=2), on_event=notes)
    assert failures == [Failure(Job(broken), f"{tmp_path / 'nowhere'}: no such folder")]
    (again,) = [event for event in notes.events if event.kind == "retried"]
    assert again.job.config == killed
    assert "killed by SIGKILL" in again.text
    assert notes.steps_after("retried")[0] == 11  # not from the beginning
    runs = [store.open(job.config) for job in jobs[:-1]]
    results = [run.result for run in runs]
    assert all(result is not None and not result.diverged for result in results)
    found = {run.path.name: run.result for run in runs if run.result is not None}
    assert found[run_id(config())].oracle == "final"  # the reference was there in time
    assert found[run_id(killed)].weights_sha256 == uninterrupted(tmp_path / "retried", killed).weights_sha256
    # done once, done for all
    assert execute(store, jobs[:-1], options, ExecutorConfig("ray", address="not even looked at")) == []


def test_workers_whose_parent_has_gone_save_and_go(tmp_path: Path) -> None:
    long = config(epochs=100_000)
    pool, run = ProcessExecutor(1, 1), Store(tmp_path).open(long)
    pool.submit("long", task_of(tmp_path, long))
    seen: list[Message] = []
    while not any(isinstance(message, StepInfo) for message in seen):
        pool.wait(0.1, lambda name, message: seen.append(message))
    pid = worker_of(run)
    assert pid is not None
    pool._workers[0].pipe.close()  # what the end of this process would do
    assert gone(pid)
    assert list(run.checkpoints.glob("*-step-*"))
    assert worker_of(run) is None  # the lock was given back
    pool.close()


@pytest.mark.usefixtures("warm")
def test_interrupted_in_a_terminal_everything_is_saved(tmp_path: Path) -> None:
    few = ["--set", "benchmark.per_class=24", "--set", "benchmark.per_class_test=10", "--epochs", "100000"]
    words = ["sweep", "--benchmark", "split-digits", "--grid", "step.damping=0.1,1", *few, "--int-reference", "none"]
    command = [sys.executable, "-m", "tmln", *words, "--workers", "2", "--runs", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + PATIENCE
    pids: list[int] = []
    while len(pids) < 2 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
        runs = [entry.path for entry in Store(tmp_path).runs()]
        learning = [path for path in runs if (path / "log.jsonl").exists()]  # 50 steps at least
        found = [
            worker_of(Store(tmp_path).open(RunConfig.from_yaml((p / "config.yaml").read_text()))) for p in learning
        ]
        pids = [pid for pid in found if pid is not None]
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, said
    assert said.strip().splitlines()[-1].startswith("tmln: stopped with 2 of 2 runs to go; the same command goes on")
    assert all(gone(pid) for pid in pids)
    assert len({path.parent for path in tmp_path.glob("*/checkpoint/*-step-*")}) == 2


def test_names_are_those_of_runs() -> None:
    assert run_id(config()) != run_id(config(seed=1))
