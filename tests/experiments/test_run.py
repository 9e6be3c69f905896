"""A run: its result, its reference, and that no moment of being killed changes anything."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.killing import PATIENCE
from tests.warm import Warm
from tmln import metrics
from tmln.executors.config import ExecutorConfig
from tmln.executors.execute import Event, execute
from tmln.executors.plan import plan
from tmln.experiments.build import build, steps_in
from tmln.experiments.config import RunConfig
from tmln.experiments.launch import RunOptions
from tmln.experiments.lock import LockLost
from tmln.experiments.reference_runs import reference_config, reference_of
from tmln.experiments.result import Result
from tmln.experiments.run import Execution
from tmln.experiments.store import Store
from tmln.methods import Step
from tmln.methods.recipes import RECIPES
from tmln.signals import Interrupted

pytestmark = pytest.mark.usefixtures("narrow")

SMALL: dict[str, Any] = {
    "benchmark": "split-digits",
    "benchmark_options": {"per_class": 24, "per_class_test": 10},
    "epochs": 2,
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*strength.*", category=UserWarning)
        yield


def config(method: str = "tmln", **changes: Any) -> RunConfig:
    return RunConfig.of({**SMALL, "method": method, **changes})


def finish(root: Path, wanted: RunConfig, **options: Any) -> Result:
    run = Store(root).open(wanted)
    with run.lock:
        return Execution(run, **options)()


def result_of(store: Store, wanted: RunConfig) -> Result:
    result = store.open(wanted).result
    assert result is not None
    return result


def comparable(result: Result) -> Result:
    return replace(result, seconds=0.0, peak_memory_bytes=0)


def test_a_result_has_all_that_the_contract_names(tmp_path: Path) -> None:
    result = finish(tmp_path, config())
    written = json.loads((tmp_path / result.name / "result.json").read_text())
    for key in ("benchmark", "method", "seed", "config", "accuracy", "metrics", "seconds", "peak_memory_bytes"):
        assert key in written
    assert {"acc", "fm", "bwt", "fwt"} <= written["metrics"].keys()
    assert written["metrics"] == {key: result.metrics[key] for key in written["metrics"]}  # as computed when read
    assert (result.benchmark, result.method, result.seed) == ("split-digits", "tmln", 0)
    assert result.parameters == 64 * 128 + 128 + 128 * 10 + 10
    R = result.accuracy
    assert (len(R), len(R[0])) == (5, 5)
    assert result.metrics["acc"] == metrics.average_accuracy(R)
    assert result.metrics["fwt"] == metrics.forward_transfer(R, result.baseline)
    assert "int" not in result.metrics
    assert result.oracle == "none"
    for masked, row in zip(result.masked_accuracy, R, strict=True):
        assert all(m >= a for m, a in zip(masked, row, strict=True))  # fewer classes compete


def test_equal_configurations_give_equal_bits(tmp_path: Path) -> None:
    one, two = finish(tmp_path / "a", config()), finish(tmp_path / "b", config())
    assert comparable(one) == comparable(two)
    assert finish(tmp_path / "c", config(seed=1)).weights_sha256 != one.weights_sha256


# One process forks those that are killed, and says how they ended.
KILLED = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
import sklearn.datasets, torch, torch._dynamo
torch.set_num_threads(1)
from tmln.experiments.config import RunConfig
from tmln.experiments.run import Execution
from tmln.experiments.store import Store
from tmln.experiments.launch import RunOptions

for line in sys.stdin:
    root, file, at = line.rstrip("\\n").split("\\t")
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue

    def step(info):
        if info.step == int(at):
            os.kill(os.getpid(), signal.SIGKILL)

    run = Store(root).open(RunConfig.from_yaml(open(file).read()))
    with run.lock:
        Execution(run, RunOptions(checkpoint_steps=5), on_step=step)()
    os._exit(0)
"""


@pytest.fixture(scope="module")
def kill() -> Iterator[Callable[[Path, Path, int], int]]:
    """Works on the run of this root and this file till it is killed at this step; the exit code."""
    command = [sys.executable, "-c", KILLED]
    with Warm(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ask, answers = process.stdin, process.stdout

        def call(root: Path, file: Path, at: int) -> int:
            ask.write(f"{root}\t{file}\t{at}\n")
            return int(answers.readline())

        yield call


@pytest.mark.parametrize("logit_mask", ["none", "seen"])
@pytest.mark.parametrize("method", RECIPES)
def test_killed_at_any_step_it_goes_on_bit_for_bit(
    method: str, logit_mask: str, tmp_path: Path, kill: Callable[[Path, Path, int], int]
) -> None:
    """At a random step, or at one whose checkpoint, of step 10, is of the second task's middle.

    Where only the first task takes steps: of step 5, and of the first task's.
    """
    options = {"per_class": 8, "per_class_test": 2, "tasks": 3}
    wanted = config(method, benchmark_options=options, batch_size=8, logit_mask=logit_mask)
    whole = finish(tmp_path / "whole", wanted)
    if not whole.steps:
        pytest.skip("in closed form: it takes no step at which it could be killed")
    log = Store(tmp_path / "whole").open(wanted).read_log()
    ends = [line["step"] for line in log if "accuracy" in line]
    step, settings = wanted.recipe().resolve("step")
    assert issubclass(step, Step)
    goes_on = step.trains_at(settings, 1)  # else the first task has all steps
    assert ends[0] < 10 < ends[1] if goes_on else 5 < 7 < ends[0] == whole.steps
    at = random.Random(method).randrange(3, whole.steps) if logit_mask == "none" else (12 if goes_on else 7)
    file = tmp_path / "config.yaml"
    file.write_text(wanted.to_yaml())
    root = tmp_path / "killed"
    assert kill(root, file, at) == -signal.SIGKILL
    run = Store(root).open(wanted)
    assert not run.finished
    assert bool(list(run.checkpoints.glob("*"))) == (at > 5)
    with run.lock:  # the dead process's lock does not stand in the way
        resumed = Execution(run, RunOptions(checkpoint_steps=5))()
    assert comparable(resumed) == comparable(whole)
    assert whole.log_crc32 == run.log_checksum
    assert run.read_log() == log


def test_saved_on_the_last_step_of_a_task_the_log_repeats_nothing(tmp_path: Path) -> None:
    steps = steps_in(build(config("naive"))[0], config("naive")) // 5  # of a task
    at: list[int] = []
    with pytest.raises(Interrupted):
        finish(
            tmp_path / "stopped",
            config("naive"),
            terms=RunOptions(checkpoint_steps=steps),
            on_step=lambda info: at.append(info.step),
            stop=lambda: len(at) == steps + 1,
        )
    newest = sorted((tmp_path / "stopped").glob("*/checkpoint/*"))[-1]
    shutil.rmtree(newest)  # back to the checkpoint of the task's last step, before its accuracy was logged
    finish(tmp_path / "stopped", config("naive"))
    finish(tmp_path / "whole", config("naive"))
    logs = [Store(tmp_path / name).open(config("naive")).read_log() for name in ("stopped", "whole")]
    assert logs[0] == logs[1]


def test_a_request_to_stop_saves_and_the_next_call_goes_on(tmp_path: Path) -> None:
    whole = finish(tmp_path / "whole", config())
    seen: list[int] = []
    stopping = {"on_step": lambda info: seen.append(info.step), "stop": lambda: len(seen) == 11}
    with pytest.raises(Interrupted, match=f"step 11 of {whole.steps}"):
        finish(tmp_path / "stopped", config(), **stopping)
    rest: list[int] = []
    resumed = finish(tmp_path / "stopped", config(), on_step=lambda info: rest.append(info.step))
    assert rest[0] == 12
    assert comparable(resumed) == comparable(whole)


@pytest.mark.usefixtures("warm")
def test_sigterm_saves_and_exits(tmp_path: Path) -> None:
    words = [
        "run",
        "--benchmark",
        "split-digits",
        "--epochs",
        "100000",
        "--int-reference",
        "none",
        "--runs",
        str(tmp_path),
    ]
    process = subprocess.Popen([sys.executable, "-m", "tmln", *words], stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + PATIENCE
        while not list(tmp_path.glob("*/log.jsonl")) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "the same command goes on" in said
    assert list(tmp_path.glob("*/checkpoint/*"))
    assert not list(tmp_path.glob("*/result.json"))


def test_a_run_that_diverges_is_kept_and_says_so(tmp_path: Path) -> None:
    result = finish(tmp_path, config("naive", lr=1e30))
    assert "lower lr" in result.diverged
    assert result.metrics["acc"] != result.metrics["acc"]  # NaN
    assert Store(tmp_path).open(config("naive", lr=1e30)).finished


def test_a_checkpoint_that_a_new_owner_removed_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run was removed in the middle of writing it; a failure of the disk stays one."""

    def fails(*arguments: object) -> None:
        (lost.path / ".lock" / "owner").write_text("process 1 on another machine\n")
        raise FileNotFoundError(2, "No such file or directory")

    lost = Store(tmp_path / "lost").open(config())
    monkeypatch.setattr("tmln.experiments.run.write_checkpoint", fails)
    with pytest.raises(LockLost, match="another process took over"):
        finish(tmp_path / "lost", config(), terms=RunOptions(checkpoint_steps=5))

    def is_full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tmln.experiments.run.write_checkpoint", is_full)
    with pytest.raises(OSError, match="No space"):
        finish(tmp_path / "full", config(), terms=RunOptions(checkpoint_steps=5))


def test_divergence_at_a_tasks_end_is_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overflow(self: object, context: object) -> None:
        raise FloatingPointError("the path integral is not finite")

    monkeypatch.setattr("tmln.methods.steps.tmln.TMLNStep.end", overflow)
    assert finish(tmp_path, config()).diverged == "the path integral is not finite"


def test_intransigence_comes_from_the_joint_run(tmp_path: Path) -> None:
    store, wanted = Store(tmp_path), config()
    jobs = plan([wanted, config("er")], "prefix")
    assert [(job.config.method, job.reference) for job in jobs] == [("joint", True), ("tmln", False), ("er", False)]
    assert execute(store, jobs, RunOptions("prefix"), ExecutorConfig("serial")) == []
    results = {job.config.method: result_of(store, job.config) for job in jobs}
    reference = [results["joint"].accuracy[k][k] for k in range(5)]
    assert reference_of(store, wanted, "prefix") == reference
    expected = metrics.intransigence(results["tmln"].accuracy, reference)
    assert results["tmln"].metrics["int"] == pytest.approx(expected)
    assert results["tmln"].oracle == "prefix"
    again: list[Event] = []
    execute(store, jobs, RunOptions("prefix"), on_event=again.append)
    assert [event.kind for event in again] == ["skipped"] * 3  # nothing is computed twice


def test_the_reference_is_shared_by_all_settings_of_all_methods() -> None:
    prefix = reference_config(config(), "prefix")
    assert prefix == reference_config(config("ewc++", settings={"penalty.strength": 1.0}), "prefix")
    assert prefix != reference_config(config(seed=1), "prefix")
    assert prefix != reference_config(config(epochs=3), "prefix")
    assert reference_config(config("joint"), "prefix") is None
    assert reference_config(config(), "none") is None


def test_the_shortcut_oracle_is_one_model_of_all_tasks(tmp_path: Path) -> None:
    store, wanted = Store(tmp_path), config()
    jobs = plan([wanted], "final")
    assert execute(store, jobs, RunOptions("final"), ExecutorConfig("serial")) == []
    merged, mine = (result_of(store, job.config) for job in jobs)
    assert (len(merged.accuracy), len(merged.accuracy[0])) == (1, 5)
    assert merged.metrics["acc"] == pytest.approx(sum(merged.accuracy[0]) / 5)
    assert mine.oracle == "final"
    expected = metrics.intransigence(mine.accuracy, merged.accuracy[0])
    assert mine.metrics["int"] == pytest.approx(expected)


@pytest.mark.parametrize("method", ["naive", "joint", "independent"])
def test_steps_are_counted_before_they_are_taken(method: str, tmp_path: Path) -> None:
    assert steps_in(build(config(method))[0], config(method)) == finish(tmp_path, config(method)).steps


@pytest.mark.usefixtures("warm")
def test_two_processes_do_not_work_on_one_run(tmp_path: Path) -> None:
    """The second waits, and says for whom; once the first has gone it does the run itself."""
    run = Store(tmp_path).open(config())
    words = ["run", "--config", str(run.path / "config.yaml"), "--runs", str(tmp_path), "--int-reference", "none"]
    command = [sys.executable, "-m", "tmln", *words]
    with run.lock, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as other:
        assert other.stderr is not None
        said = other.stderr.readline()
        assert "waits, for run" in said
        assert f"{os.getpid()}" in said
        assert not run.finished
        run.lock.release()
        other.communicate(timeout=PATIENCE)
    assert other.returncode == 0
    assert run.finished
